package recent

import (
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
)

// when writes unix seconds for people.
func when(unix uint64) string {
	return time.Unix(int64(unix), 0).UTC().Format("2006-01-02 15:04:05 UTC")
}

// proof says why nobody else can have won.
func (a Answer) proof() string {
	newest, shows := a.newest()
	candidates := a.Trace.Candidates
	switch {
	case a.Trace.Proof == ByNext && len(candidates) > 1:
		return fmt.Sprintf("The newest visible photo of the first candidate (%s) is newer than the last upload of the next one (%s): "+
			"nobody else can have a newer one.", when(newest.DateUpload), when(candidates[1].Score))
	case a.Trace.Proof == ByLowest && len(candidates) > 0:
		return fmt.Sprintf("The newest visible photo of all candidates (%s) is newer than the lowest score of the set (%s): "+
			"nobody outside of it can have a newer one.", when(newest.DateUpload), when(candidates[len(candidates)-1].Score))
	case a.Trace.Proof == ByAll && shows:
		return fmt.Sprintf("The set is complete (members: %d; below %d there is nobody else), and no other member has a newer visible photo.",
			len(candidates), a.least())
	case a.Trace.Proof == ByAll:
		return fmt.Sprintf("The set is complete (members: %d; below %d there is nobody else), and nobody in it has a visible photo.",
			len(candidates), a.least())
	}
	return "The index could not prove an answer; the walk through the database did: " + a.stopped() + "."
}

// least is the size below which a set is complete.
func (a Answer) least() int {
	if a.from == nil {
		return DefaultMin
	}
	return a.from.options.Min
}

// stopped says why the walk went no further.
func (a Answer) stopped() string {
	newest, _ := a.newest()
	switch walk := a.Trace.Walk; {
	case walk.Bound > 0:
		return fmt.Sprintf("the newest visible photo that it found (%s) is newer than the last upload (%s at most) of everybody whom it did not look at",
			when(newest.DateUpload), when(walk.Bound))
	case walk.LookedAt == 0:
		return "the viewer has no contact who ever uploaded"
	default:
		return fmt.Sprintf("it looked at all contacts who ever uploaded (%d)", walk.LookedAt)
	}
}

func (c *Candidate) whyChosen() string {
	if !c.InSet {
		return "found by the walk: the set does not hold it"
	}
	return "nobody has a newer visible photo"
}

func (c *Candidate) whyOlder(a Answer) string {
	answers, shows := a.newest()
	own := contacts.Photo{ID: c.NewestID, DateUpload: c.Newest}
	switch {
	case !shows || own.Newer(answers):
		return "it changed while the answer was looked for"
	case own.DateUpload == answers.DateUpload:
		return "its newest visible photo is of the same second as the answer's, which has the higher id"
	}
	return fmt.Sprintf("its newest visible photo is older than the answer's (%s)", when(answers.DateUpload))
}

func (c *Candidate) whyNothing() string {
	if c.Now == nil || c.Now.Hidden == nil {
		return "it has no photo that the viewer may see"
	}
	audience := map[contacts.Visibility]string{
		contacts.Private:       "private",
		contacts.Friends:       "for its friends",
		contacts.Family:        "for its family",
		contacts.FriendsFamily: "for its friends and family",
		contacts.Public:        "public",
	}[c.Now.Hidden.Visibility]
	return fmt.Sprintf("it has no photo that the viewer may see; its newest (%s) is %s", when(c.Now.Hidden.DateUpload), audience)
}

func (c *Candidate) whyNotContact() string {
	switch {
	case c.Now != nil && !c.Now.IsMember:
		return "it is no member any more: the set is behind"
	case c.Now != nil && c.Now.IsContact:
		return "it was no contact during the read, and is one by now"
	}
	return "the viewer does not call it a contact: the set is behind"
}

// whyNotLooked names the bound that was beaten: scores never rise from one
// candidate to the next.
func whyNotLooked(a Answer) string {
	newest, shows := a.newest()
	if !shows || len(a.Trace.Candidates) < 2 {
		return "the answer was proven before"
	}
	return fmt.Sprintf("the answer's newest photo (%s) beats the next score (%s), which bounds all from there on",
		when(newest.DateUpload), when(a.Trace.Candidates[1].Score))
}
