package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Cause names the fault of a set or an answer.
type Cause string

// The causes, each with the invariant of package index that it breaks.
const (
	Ghost          Cause = "ghost"           // none: a member that is no contact takes a place
	MissingContact Cause = "missing contact" // I1: a contact uploaded after the lowest score and is no member
	StaleScore     Cause = "stale score"     // I2: a score is lower than the contact's last upload
	HighScore      Cause = "high score"      // none: a score is higher than the last upload, and costs a look
	WrongSize      Cause = "wrong size"      // I3: more members than Max; or fewer than Min, though there are more contacts
	LostSet        Cause = "lost set"        // none: there is no set, though sets of all members are kept
	Foreign        Cause = "foreign"         // I4: there is something that activityd never wrote
	Orphan         Cause = "orphan"          // none: the owner of the set is no member
	LowLastUpload  Cause = "low last upload" // none: the site's promise: a newest photo that is not private is newer than its owner's last upload
	WrongAnswer    Cause = "wrong answer"    // a read by way of the index shows something else than MySQL alone
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{Ghost, MissingContact, StaleScore, HighScore, WrongSize, LostSet, Foreign, Orphan, LowLastUpload, WrongAnswer}
}

// Weight says how much a finding matters.
type Weight string

// The weights.
const (
	Lag   Weight = "lag"   // a task is pending that will look at it
	Error Weight = "error" // nothing is pending: it will stay until it is repaired
	Waste Weight = "waste" // nothing is pending, but it does no harm: it costs a place, a look, or memory
)

// Weights returns all weights.
func Weights() []Weight { return []Weight{Lag, Error, Waste} }

// Finding is a difference between Redis and MySQL.
type Finding struct {
	User    member.ID // the owner of the set, or the viewer of the answer
	Contact member.ID // the contact that it is about; 0: the set as a whole
	Cause   Cause
	Weight  Weight
	// Stored and Actual are the values of the set and of MySQL: unix seconds of the last upload of a contact, or
	// for findings about the set as a whole numbers of members; for a low last upload that and the date of the newest
	// photo that is not private; for a wrong answer the dates of the newest photos shown and due.
	Stored, Actual uint64
	// Since is when the oldest pending task that explains a Lag was enqueued; zero: it is not known.
	Since time.Time
	// Lasting says that this is longer ago than [Options].LagLimit.
	Lasting bool
	// Detail is for people: dead tasks that may be the reason. May be empty.
	Detail string

	involved []member.ID // the contacts whose uploads may be on their way
}

// String describes the finding in a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s of user %s", f.Weight, f.Cause, f.User)
	if f.Contact != 0 {
		text += fmt.Sprintf(", contact %s", f.Contact)
	}
	text += ", " + f.values()
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// mendable reports whether a refill mends it. A wrong last_upload only the site can mend.
func (f Finding) mendable() bool { return f.Cause != LowLastUpload }

// isOnlyAbout reports whether the finding says that uploads of broadcast members are not in a set. Reads find them in
// their rows.
func (f Finding) isOnlyAbout(broadcasts map[member.ID]contacts.Broadcast) bool {
	if f.Cause != MissingContact && f.Cause != StaleScore && f.Cause != WrongSize || len(f.involved) == 0 {
		return false
	}
	for _, id := range f.involved {
		b, isBroadcast := broadcasts[id]
		if !isBroadcast || f.Cause != WrongSize && b.LastUpload < f.Actual {
			return false
		}
	}
	return true
}

// values describes Stored and Actual.
func (f Finding) values() string {
	switch f.Cause {
	case Ghost:
		return "which is no contact, scored " + date(f.Stored)
	case MissingContact:
		return "which uploaded at " + date(f.Actual)
	case StaleScore, HighScore:
		return fmt.Sprintf("scored %s, which uploaded at %s", date(f.Stored), date(f.Actual))
	case LowLastUpload:
		return fmt.Sprintf("whose last_upload is %s, and whose newest photo that is not private %s", date(f.Stored), date(f.Actual))
	case WrongAnswer:
		return fmt.Sprintf("who is shown photos up to %s, and should be up to %s", date(f.Stored), date(f.Actual))
	case Foreign:
		return fmt.Sprintf("members that activityd never wrote: %d, or the key is no sorted set", f.Stored)
	case LostSet, WrongSize, Orphan:
	}
	return fmt.Sprintf("members: %d, and should be %d", f.Stored, f.Actual)
}

// date writes unix seconds for people, in UTC.
func date(unix uint64) string {
	if unix == 0 {
		return "no date"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

// Report is the result of a check.
type Report struct {
	Checked   int // sets, or answers, that were judged
	Erroneous int // sets, or answers, with an Error
	Unsettled int // sets, or answers, that changed too often to be judged; not in Checked

	Skipped  []member.ID         // viewers whose answers the index had no part in, or that are no members; not in Checked
	Failed   map[member.ID]error // members that could not be compared, and why; not in Checked
	Findings []Finding
}

// Wrong returns the owners of errors and waste that a refill would mend, each once.
func (r *Report) Wrong() (owners []member.ID) {
	for _, f := range r.Findings {
		if f.Weight != Lag && f.mendable() && !slices.Contains(owners, f.User) {
			owners = append(owners, f.User)
		}
	}
	return owners
}

// Add counts another report in.
func (r *Report) Add(other Report) {
	r.Checked += other.Checked
	r.Erroneous += other.Erroneous
	r.Unsettled += other.Unsettled
	r.Skipped = append(r.Skipped, other.Skipped...)
	maps.Copy(r.Failed, other.Failed)
	r.Findings = append(r.Findings, other.Findings...)
}
