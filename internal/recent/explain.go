package recent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Trace is how an answer was found. It is for operators: a score is the date of an
// upload, perhaps of a photo that the viewer may not see.
type Trace struct {
	// Candidates are the set, and the broadcast members that the read found, most recent upload first. [Reader.Explain]
	// adds the contact that a walk chose, at the end, if it is neither.
	Candidates []Candidate `json:"candidates"`
	Proof      Proof       `json:"proof"` // why no other contact can have a newer photo
	// Bound is the date that the proof rests on, in unix seconds: no contact that was not
	// looked at has uploaded later. 0: all were looked at.
	Bound      uint64             `json:"bound"`
	WalkReason Reason             `json:"walk_reason,omitzero"` // why the walk was needed; "": it was not
	Walk       contacts.WalkTrace `json:"walk,omitzero"`        // how far the walk went
	Steps      []Step             `json:"steps"`                // what took how long, in order
}

// candidate returns the candidate with an id, nil if there is none.
func (t *Trace) candidate(id member.ID) *Candidate {
	for i := range t.Candidates {
		if t.Candidates[i].Contact == id {
			return &t.Candidates[i]
		}
	}
	return nil
}

// Candidate is a contact, and what the read found out about it.
type Candidate struct {
	Contact   member.ID      `json:"contact_id"`
	InSet     bool           `json:"in_set"`
	Broadcast bool           `json:"broadcast"`               // a broadcast member whose row the read found
	Score     uint64         `json:"score"`                   // unix seconds of its last upload, as the read knew it; 0: it did not
	Newest    contacts.Photo `json:"newest_visible,omitzero"` // without its title; zero: none, or not looked at
	Verdict   Verdict        `json:"verdict"`
	// Now is how it stood with the viewer a moment after the read; nil but for [Reader.Explain].
	Now *contacts.Detail `json:"now"`
}

// Proof is why an answer is right; see the package documentation.
type Proof string

// The proofs of an answer.
const (
	ByNext   Proof = "next"     // the newest photo is newer than the bound of all others
	ByLowest Proof = "lowest"   // it is the newest of all candidates, and newer than the bound of all others
	ByAll    Proof = "complete" // it is the newest of all candidates, and the set, smaller than min, holds all contacts
	ByWalk   Proof = "walk"     // it was found by a walk, through as many contacts as needed
)

// Verdict is the result for one candidate.
type Verdict string

// The verdicts on candidates.
const (
	Chosen     Verdict = "chosen"
	Older      Verdict = "older"           // its newest visible photo is older than the answer's
	Nothing    Verdict = "nothing visible" // the viewer may see none of its photos
	Blocked    Verdict = "blocked"         // the same, because one of the two blocks the other; only by [Reader.Explain]
	NotContact Verdict = "not a contact"   // it is a ghost: the index is behind
	NotLooked  Verdict = "not looked at"   // its score is below the bound
)

// Step is one round trip of a read, or a wait.
type Step struct {
	Name string // "redis", "first", "others", "winner", "walk", "details"
	Took time.Duration
}

// MarshalJSON has the time in milliseconds.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name string  `json:"name"`
		Took float64 `json:"ms"`
	}{s.Name, float64(s.Took.Microseconds()) / 1000})
}

// Explain is [Reader.Read] with one more statement, the step "details", for how the
// candidates stand with the viewer.
func (r *Reader) Explain(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	a, err := r.Read(ctx, v, limit)
	if err != nil {
		return Answer{}, err
	}
	t := &a.Trace
	if a.Contact != nil && t.candidate(a.Contact.ID) == nil {
		newest := contacts.Photo{ID: a.Photos[0].ID, DateUpload: a.Photos[0].DateUpload}
		t.Candidates = append(t.Candidates, Candidate{Contact: a.Contact.ID, Newest: newest, Verdict: Chosen})
	}
	if len(t.Candidates) == 0 {
		t.Candidates = []Candidate{} // [] in JSON
		return a, nil
	}
	owners := make([]member.ID, len(t.Candidates))
	for i, c := range t.Candidates {
		owners[i] = c.Contact
	}
	start := time.Now()
	details, err := r.store.Details(ctx, v, owners)
	if err != nil {
		return Answer{}, fmt.Errorf("explaining the answer for %s: %w", v.ID, err)
	}
	t.Steps = append(t.Steps, Step{Name: "details", Took: time.Since(start)})
	for i := range details {
		c := &t.Candidates[i]
		c.Now = &details[i]
		if c.Verdict == Nothing && (c.Now.Blocks || c.Now.Blocked) {
			c.Verdict = Blocked
		}
	}
	return a, nil
}

// Explanation is an answer of [Reader.Explain] in words.
type Explanation struct {
	Headline   string
	Head       []string    // the columns of the table of candidates
	Candidates [][]string  // its rows
	Facts      [][2]string // names and values: the proof, the walk, how far behind the sets may be, the timings
}

// Explanation says what viewer sees, and why. behind is how far behind the sets may be, in seconds; nil: that does not
// matter, or is not known.
func (a Answer) Explanation(viewer member.ID, behind *float64) Explanation {
	x := Explanation{
		Headline: fmt.Sprintf("%s sees nothing, from the %s", viewer, a.Source),
		Head:     []string{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"},
	}
	if a.Contact != nil {
		x.Headline = fmt.Sprintf("%s sees %s (%q), from the %s; photos: %d, newest: %s",
			viewer, a.Contact.ID, a.Contact.Username, a.Source, len(a.Photos), date(a.Photos[0].DateUpload))
	}
	for _, c := range a.Trace.Candidates {
		row := c.cells()
		if why := a.because(c); why != "" {
			row[len(row)-1] += ": " + why
		}
		x.Candidates = append(x.Candidates, row)
	}
	walk, late := "not needed", ""
	if reason, t := a.Trace.WalkReason, a.Trace.Walk; reason != "" {
		walk = fmt.Sprintf("because %s; contacts looked at: %d, passes: %d, statements: %d",
			cmp.Or(reasonWords[reason], string(reason)), t.LookedAt, t.Passes, t.Statements)
	}
	switch {
	case behind == nil:
	case *behind == 0:
		late = "no, no task is due"
	default:
		late = fmt.Sprintf("by up to %.1f s: the oldest task that may change a set waits for so long", *behind)
	}
	var steps []string
	for _, s := range a.Trace.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2f ms", s.Name, float64(s.Took.Microseconds())/1000))
	}
	for _, fact := range [][2]string{{"proof", a.proof()}, {"walk", walk}, {"behind", late}, {"timings", strings.Join(steps, ", ")}} {
		if fact[1] != "" {
			x.Facts = append(x.Facts, fact)
		}
	}
	return x
}

// date returns unix seconds as a date in UTC, "-" for 0.
func date(unix uint64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

func (c Candidate) cells() []string {
	visible := c.Newest.DateUpload
	if visible == 0 && c.Verdict == NotLooked && c.Now.Newest != nil {
		visible = c.Now.Newest.DateUpload
	}
	hidden := "-"
	if h := c.Now.Hidden; h != nil {
		hidden = fmt.Sprintf("%s %s", date(h.DateUpload), h.Visibility)
	}
	var grants []string
	if c.Now.Friend {
		grants = append(grants, "friend")
	}
	if c.Now.Family {
		grants = append(grants, "family")
	}
	name := c.Contact.String()
	if c.Now.Username != "" {
		name = fmt.Sprintf("%s (%q)", name, c.Now.Username)
	}
	return []string{
		name, date(c.Score), date(c.Now.LastUpload), date(visible), hidden, cmp.Or(strings.Join(grants, ","), "-"), string(c.Verdict),
	}
}

// because returns the reason for a verdict; "" where the verdict and the dates beside it are enough.
func (a Answer) because(c Candidate) string {
	switch {
	case c.Verdict == Chosen && !c.InSet && !c.Broadcast:
		return "the walk found it; it is not in the set"
	case c.Verdict == Older && (len(a.Photos) == 0 || c.Newest.Newer(a.Photos[0])):
		return "it changed during the read"
	case c.Verdict == Older && a.Photos[0].DateUpload == c.Newest.DateUpload:
		return "its newest photo is of the same second and has the lower id"
	case c.Verdict == NotContact && !c.Now.IsMember:
		return "it is no member any more: the set is behind"
	case c.Verdict == NotContact && c.Now.IsContact:
		return "it became a contact after the read"
	case c.Verdict == NotContact:
		return "it is no contact any more: the set is behind"
	case c.Broadcast && !c.InSet:
		return "it is a broadcast member, which was found beside the set"
	}
	return ""
}

// proof says why no other contact has a newer visible photo.
func (a Answer) proof() string {
	t, newest := a.Trace, "-"
	if len(a.Photos) > 0 {
		newest = date(a.Photos[0].DateUpload)
	}
	newer := func(of, others string) string {
		return fmt.Sprintf("the newest visible photo %s (%s) is newer than the last upload (%s at most) of each %s", of, newest, date(t.Bound), others)
	}
	switch {
	case t.Proof == ByNext:
		return newer("of the first candidate", "other contact")
	case t.Proof == ByLowest:
		return newer("of all candidates", "contact that is no candidate")
	case t.Proof == ByAll && len(a.Photos) == 0:
		return fmt.Sprintf("the candidates are all contacts that ever uploaded (%d), and none has a visible photo", len(t.Candidates))
	case t.Proof == ByAll:
		return fmt.Sprintf("the candidates are all contacts that ever uploaded (%d), and no other has a newer visible photo", len(t.Candidates))
	case t.Bound > 0:
		return newer("that the walk found", "contact that it did not look at")
	case t.Walk.LookedAt == 0:
		return "the viewer has no contact that ever uploaded"
	}
	return fmt.Sprintf("the walk looked at all contacts that ever uploaded (%d)", t.Walk.LookedAt)
}

// reasonWords says in words why a walk was needed.
var reasonWords = map[Reason]string{
	NoContacts:       "there is no contact that ever uploaded",
	SetMissing:       "the set is missing",
	SetMalformed:     "the set is malformed",
	OtherSettings:    "the sets were built with other settings",
	RedisUnavailable: "redis is unavailable",
	SetUnknown:       "redis came back with data that may be old, which are being deleted",
	WritesRefused:    "redis refuses writes, so that the set may be behind",
	NothingVisible:   "no candidate has a visible photo",
	BestTooOld:       "the best candidate's photo is not newer than the lowest score",
	PhotosChanged:    "the photos changed during the read",
}
