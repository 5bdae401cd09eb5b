package push

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Candidate is a member that may be notified of an event.
type Candidate struct {
	Event  *StoredEvent
	Member member.ID
	Device uint64 // 0: all devices of the member
}

// Facts decide whether a device of a candidate is notified, all as of the same instant.
type Facts struct {
	Candidate int // its place in the list of candidates
	Device    Device
	Settings  Settings
	Muted     time.Time // until when the object or the actor is muted; zero: it is not
	Blocked   bool      // the member blocks the actor, or the actor the member
	Visible   bool      // the event is about no photo, or the member may see the photo
	Accepted  bool      // the event was accepted for the device before
	Failed    bool      // the event was refused for the device before, for good
	Pending   bool      // the event waits with its burst
	Burst     time.Time // when an event of the burst was last accepted for the device; zero: never, or there is no burst
	Actor     string    // the username of the actor
	Departed  bool      // the actor is no member, or none any more
	Now       time.Time // by the database's clock
}

// Skip is why a device is not notified: a label of metrics and a word of receipts.
type Skip string

// The reasons.
const (
	NoDevice   Skip = "no_device" // or no member any more
	OptedOut   Skip = "opted_out" // of the type
	Muted      Skip = "muted"     // the object or the actor
	Blocked    Skip = "blocked"   // the member blocks the actor, or the actor the member
	NotVisible Skip = "not_visible"
	Expired    Skip = "expired"
	NoActor    Skip = "no_actor" // the actor is no member any more: its deeds are not announced
	Unshown    Skip = "unshown"  // the event is silent, and the device has to show all that it is sent
	Off        Skip = "off"      // the platform has no keys here
	Doubled    Skip = "doubled"  // it was accepted before, or refused
	Lost       Skip = "lost"     // the database has lost the event: there is no receipt
)

// Decision is the meaning of facts for an event: send, or skip for a reason, or not before a
// time.
type Decision struct {
	Skip      Skip      // "": send
	NotBefore time.Time // the end of the quiet hours; zero: now
}

// Decide is the only rule by which an event is for a device, immediately before it is sent.
func Decide(e *StoredEvent, f Facts, mustShow map[Platform]bool) Decision {
	switch {
	case f.Accepted, f.Failed:
		return Decision{Skip: Doubled}
	case !f.Now.Before(e.Expires):
		return Decision{Skip: Expired}
	case f.Departed:
		return Decision{Skip: NoActor}
	case f.Blocked:
		return Decision{Skip: Blocked}
	case !f.Visible:
		return Decision{Skip: NotVisible}
	case f.Now.Before(f.Muted):
		return Decision{Skip: Muted}
	case !f.Settings.Wants(e.Type):
		return Decision{Skip: OptedOut}
	case e.Silent && mustShow[f.Device.Platform]:
		return Decision{Skip: Unshown}
	case e.Urgent, e.Silent:
		return Decision{}
	}
	until := f.Settings.QuietUntil(f.Now)
	if !until.IsZero() && !until.Before(e.Expires) {
		return Decision{Skip: Expired} // it would be too late afterwards
	}
	return Decision{NotBefore: until}
}

// Looker reads facts; it is a [*MySQL].
type Looker interface {
	// Look returns the facts of each live device of the candidates, by one statement; candidates
	// without a device, or that are no members, have none. A photo is visible as
	// the read sees it, by the same conditions.
	Look(ctx context.Context, candidates []Candidate) ([]Facts, error)
}
