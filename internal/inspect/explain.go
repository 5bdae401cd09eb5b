package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// Explanation says in words what a member sees, and why.
type Explanation struct {
	Headline   string
	Candidates Table // without rows, if there was none
	Facts      [][2]string
}

// Explain puts an explanation into words. behind is how far behind the sets may be, in seconds; nil: that does not matter, or
// is not known.
func Explain(viewer member.ID, e recent.Explanation, behind *float64) (x Explanation) {
	x.Headline = fmt.Sprintf("%s sees nothing, from the %s", viewer, e.Source)
	if e.Contact != nil && len(e.Photos) > 0 {
		x.Headline = fmt.Sprintf("%s sees %s, from the %s; photos: %d, newest: %s",
			viewer, named(e.Contact.ID, e.Contact.Username), e.Source, len(e.Photos), Date(e.Photos[0].DateUpload))
	}
	x.Candidates = candidates(e)
	walk := "not needed"
	if e.Trace.WalkReason != "" {
		t := e.Trace.Walk
		walk = fmt.Sprintf("because %s; contacts looked at: %d, passes: %d, statements: %d",
			cmp.Or(walkReasons[e.Trace.WalkReason], string(e.Trace.WalkReason)), t.LookedAt, t.Passes, t.Statements)
	}
	var steps []string
	for _, s := range e.Trace.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2f ms", s.Name, float64(s.Took.Microseconds())/1000))
	}
	x.Facts = [][2]string{{"proof", proof(e)}, {"walk", walk}, {"behind", behindLine(behind)}, {"timings", strings.Join(steps, ", ")}}
	return x
}

// behindLine says of an answer by the index how far behind the sets may be.
func behindLine(seconds *float64) string {
	switch {
	case seconds == nil:
		return ""
	case *seconds == 0:
		return "no, no task is due"
	}
	return fmt.Sprintf("by up to %.1f s: the oldest task that may change a set waits for so long", *seconds)
}

// Date returns unix seconds, and what date that is in UTC; "never" for 0.
func Date(unix uint64) string {
	if unix == 0 {
		return "never"
	}
	return fmt.Sprintf("%d (%s)", unix, time.Unix(int64(unix), 0).UTC().Format(time.DateTime))
}

// named adds the name to an id, if there is one.
func named(id member.ID, name string) string {
	if name == "" {
		return id.String()
	}
	return fmt.Sprintf("%s (%s)", id, OneLine(name))
}

// day returns unix seconds as a date in UTC, "-" for 0.
func day(unix uint64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

func candidates(e recent.Explanation) Table {
	t := Table{Head: []string{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"}}
	reasons := false
	for _, c := range e.Candidates {
		row := candidateCells(c)
		if why := because(c, e.Album); why != "" {
			row, reasons = append(row, why), true
		}
		t.Rows = append(t.Rows, row)
	}
	if reasons {
		t.Head = append(t.Head, "BECAUSE")
	}
	return t
}

func candidateCells(c recent.Candidate) []string {
	visible := c.Newest
	if visible == 0 && c.Verdict == recent.NotLooked && c.Now.Newest != nil {
		visible = c.Now.Newest.DateUpload
	}
	hidden := "-"
	if h := c.Now.Hidden; h != nil {
		hidden = fmt.Sprintf("%s %s", day(h.DateUpload), h.Visibility)
	}
	var grants []string
	if c.Now.Friend {
		grants = append(grants, "friend")
	}
	if c.Now.Family {
		grants = append(grants, "family")
	}
	return []string{
		named(c.Contact, c.Now.Username), day(c.Score), day(c.Now.LastUpload), day(visible), hidden,
		cmp.Or(strings.Join(grants, ","), "-"), string(c.Verdict),
	}
}

// because returns the reason for a verdict; "" where the verdict and the dates beside it
// are enough.
func because(c recent.Candidate, shown contacts.Album) string {
	switch {
	case c.Broadcast:
		return "it is a broadcast member, which was found beside the set"
	case c.Verdict == recent.Chosen && !c.InSet:
		return "the walk found it; it is not in the set"
	case c.Verdict == recent.Older && (len(shown.Photos) == 0 || shown.Photos[0].DateUpload < c.Newest):
		return "it changed during the read"
	case c.Verdict == recent.Older && shown.Photos[0].DateUpload == c.Newest && shown.Photos[0].ID < c.NewestID:
		return "it changed during the read"
	case c.Verdict == recent.Older && shown.Photos[0].DateUpload == c.Newest:
		return "its newest photo is of the same second and has the lower id"
	case c.Verdict == recent.NotContact && !c.Now.IsMember:
		return "it is no member any more: the set is behind"
	case c.Verdict == recent.NotContact && c.Now.IsContact:
		return "it became a contact after the read"
	case c.Verdict == recent.NotContact:
		return "it is no contact any more: the set is behind"
	}
	return ""
}

// proof says why no other contact has a newer visible photo.
func proof(e recent.Explanation) string {
	var newest string
	if len(e.Photos) > 0 {
		newest = day(e.Photos[0].DateUpload)
	}
	t := e.Trace
	bound, walk := day(t.Bound), t.Walk
	switch {
	case t.Proof == recent.ByNext:
		return fmt.Sprintf("the newest visible photo of the first candidate (%s) is newer than the last upload (%s at most) of each other contact", newest, bound)
	case t.Proof == recent.ByLowest:
		return fmt.Sprintf("the newest visible photo of all candidates (%s) is newer than the last upload (%s at most) of each contact "+
			"that is no candidate", newest, bound)
	case t.Proof == recent.ByAll:
		none := "no other has a newer visible photo"
		if newest == "" {
			none = "none has a visible photo"
		}
		return fmt.Sprintf("the candidates are all contacts that ever uploaded (%d), and %s", len(t.Candidates), none)
	case walk.Bound > 0:
		return fmt.Sprintf("the newest visible photo that the walk found (%s) is newer than the last upload (%s at most) of each contact "+
			"that it did not look at", newest, bound)
	case walk.LookedAt == 0:
		return "the viewer has no contact that ever uploaded"
	}
	return fmt.Sprintf("the walk looked at all contacts that ever uploaded (%d)", walk.LookedAt)
}

// walkReasons says in words why a walk was needed.
var walkReasons = map[recent.Reason]string{
	recent.NoContacts:       "there is no contact that ever uploaded",
	recent.SetMissing:       "the set is missing",
	recent.SetMalformed:     "the set is malformed",
	recent.OtherSettings:    "the sets were built with other settings",
	recent.RedisUnavailable: "redis is unavailable",
	recent.SetUnknown:       "redis came back with data that may be old, which are being deleted",
	recent.WritesRefused:    "redis refuses writes, so that the set may be behind",
	recent.NothingVisible:   "no candidate has a visible photo",
	recent.BestTooOld:       "the best candidate's photo is not newer than the lowest score",
	recent.PhotosChanged:    "the photos changed during the read",
}
