package recent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Trace is how an answer was found. It is for operators: a score is the date of an
// upload, perhaps of a photo that the viewer may not see.
type Trace struct {
	// Candidates are the set, and the broadcast members that the read found, most recent upload first; at the end is the contact
	// that a walk chose, if it is neither.
	Candidates []Candidate `json:"candidates"`
	Proof      Proof       `json:"proof"` // why no contact beyond can have a newer photo
	// Bound is the date that the proof rests on, in unix seconds: no contact that was not
	// looked at has uploaded later. 0: all were looked at.
	Bound      uint64             `json:"bound"`
	WalkReason Reason             `json:"walk_reason,omitzero"` // why the walk was needed; "": it was not
	Walk       contacts.WalkTrace `json:"walk,omitzero"`        // how far the walk went
	Steps      []Step             `json:"steps"`                // and how long each took, in order
}

// Candidate is a contact, with the facts that the read found out about it.
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
	ByNext      Proof = "next"
	ByLowest    Proof = "lowest"
	ByAll       Proof = "complete"
	ByWalk      Proof = "walk"
	byWholeWalk Proof = "whole walk" // in words only
)

// proofs are all of them, in words.
var proofs = map[Proof]string{
	ByNext:      "the newest visible photo of the first candidate (NEWEST) is newer than the last upload (BOUND at most) of each other contact",
	ByLowest:    "the newest visible photo of all candidates (NEWEST) is newer than the last upload (BOUND at most) of each contact that is no candidate",
	ByAll:       "the candidates are all contacts that ever uploaded, and no other has a newer visible photo",
	ByWalk:      "the newest visible photo that the walk found (NEWEST) is newer than the last upload (BOUND at most) of each contact that it did not look at",
	byWholeWalk: "the walk looked at all contacts that ever uploaded",
}

// Reason is why a read walks: the candidates prove no answer. It is a label of metrics, too.
type Reason string

// The reasons for a walk.
const (
	NoContacts       Reason = "no_contacts" // and so nothing to walk through, and no set
	SetMissing       Reason = "set_missing"
	SetMalformed     Reason = "set_malformed"
	OtherSettings    Reason = "other_settings"
	RedisUnavailable Reason = "redis_unavailable"
	SetUnknown       Reason = "set_unknown"
	WritesRefused    Reason = "writes_refused"
	NothingVisible   Reason = "nothing_visible"
	BestTooOld       Reason = "best_too_old"
	PhotosChanged    Reason = "photos_changed"
)

// reasons are all of them, in words.
var reasons = map[Reason]string{
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

// Verdict is the result for a candidate.
type Verdict string

// The verdicts on candidates.
const (
	Chosen     Verdict = "chosen"
	Older      Verdict = "older"           // its newest visible photo is older than the answer's, or of the same second with a lower id
	Nothing    Verdict = "nothing visible" // the viewer may see none of its photos
	Blocked    Verdict = "blocked"         // the same, because of a block, in either direction; only by [Reader.Explain]
	NotContact Verdict = "not a contact"   // it is a ghost: the index is behind
	NotLooked  Verdict = "not looked at"   // its score is below the bound
)

// Step is a round trip of a read, or a wait.
type Step struct {
	Name         string  `json:"name"` // "redis", "first", "others", "winner", "walk", "details"
	Milliseconds float64 `json:"ms"`
}

// step notes how long a step took that has ended.
func (t *Trace) step(name string, began time.Time) {
	t.Steps = append(t.Steps, Step{name, float64(time.Since(began).Microseconds()) / 1000})
}

// Explain is [Reader.Read] with a further statement, the step "details", for how the
// candidates stand with the viewer.
func (r *Reader) Explain(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	a, err := r.Read(ctx, v, limit)
	t := &a.Trace
	if err != nil || len(t.Candidates) == 0 {
		return a, err
	}
	owners := make([]member.ID, len(t.Candidates))
	for i, c := range t.Candidates {
		owners[i] = c.Contact
	}
	began := time.Now()
	details, err := r.store.Details(ctx, v, owners)
	if err != nil {
		return Answer{}, fmt.Errorf("explaining the answer for %s: %w", v.ID, err)
	}
	t.step("details", began)
	for i, d := range details {
		c := &t.Candidates[i]
		c.Now = &d
		if c.Verdict == Nothing && (d.Blocks || d.Blocked) {
			c.Verdict = Blocked
		}
	}
	return a, nil
}

// candidates are all that a read saw, with the verdicts.
func (rd *reading) candidates() []Candidate {
	list := make([]Candidate, 0, len(rd.set)+len(rd.broadcasts)) // [] in JSON
	of := func(id member.ID) *Candidate {
		i := slices.IndexFunc(list, func(c Candidate) bool { return c.Contact == id })
		if i < 0 {
			i, list = len(list), append(list, Candidate{Contact: id, Verdict: NotLooked})
		}
		return &list[i]
	}
	for _, e := range rd.set {
		c := of(e.Contact)
		c.InSet, c.Score = true, e.Score
	}
	for _, b := range rd.broadcasts {
		c := of(b.ID)
		c.Broadcast, c.Score = true, max(c.Score, b.LastUpload)
	}
	slices.SortStableFunc(list, func(x, y Candidate) int { return cmp.Compare(y.Score, x.Score) })
	for _, s := range rd.standings {
		switch c := of(s.Owner); {
		case !s.IsContact:
			c.Verdict = NotContact
		case s.Newest == nil:
			c.Verdict = Nothing
		default:
			c.Verdict, c.Newest = Older, *s.Newest
		}
	}
	if rd.Contact != nil {
		c := of(rd.Contact.ID)
		c.Verdict, c.Newest = Chosen, contacts.Photo{ID: rd.Photos[0].ID, DateUpload: rd.Photos[0].DateUpload}
	}
	return list
}

// Explanation is an answer of [Reader.Explain] in words.
type Explanation struct {
	Headline   string
	Head       []string    // the columns of the table of candidates
	Candidates [][]string  // its rows
	Facts      [][2]string // names and values: the proof, the walk, how far behind the sets may be, the timings
}

// Explanation tells the answer to viewer, and why. behind is how far behind the sets may be, in seconds; nil: that does not
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
		x.Candidates = append(x.Candidates, c.cells())
	}
	walk := "not needed"
	if t := a.Trace.Walk; a.Trace.WalkReason != "" {
		walk = fmt.Sprintf("because %s; contacts looked at: %d, statements: %d", reasons[a.Trace.WalkReason], t.LookedAt, t.Statements)
	}
	x.Facts = append(x.Facts, [2]string{"proof", a.proof()}, [2]string{"walk", walk})
	if behind != nil {
		x.Facts = append(x.Facts, [2]string{"behind", fmt.Sprintf("by up to %.1f s, the wait of the oldest task that may change a set", *behind)})
	}
	var steps []string
	for _, s := range a.Trace.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2f ms", s.Name, s.Milliseconds))
	}
	x.Facts = append(x.Facts, [2]string{"timings", strings.Join(steps, ", ")})
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
	visible, hidden, name, verdict := c.Newest.DateUpload, "-", c.Contact.String(), string(c.Verdict)
	if visible == 0 && c.Verdict == NotLooked && c.Now.Newest != nil {
		visible = c.Now.Newest.DateUpload
	}
	if h := c.Now.Hidden; h != nil {
		hidden = fmt.Sprintf("%s %s", date(h.DateUpload), h.Visibility)
	}
	grants := map[[2]bool]string{{true, true}: "friend,family", {true, false}: "friend", {false, true}: "family", {}: "-"}
	if c.Now.Username != "" {
		name = fmt.Sprintf("%s (%q)", name, c.Now.Username)
	}
	switch {
	case c.InSet:
	case c.Broadcast:
		verdict += ": it is a broadcast member, which was found beside the set"
	default:
		verdict += ": the walk found it; it is not in the set"
	}
	return []string{name, date(c.Score), date(c.Now.LastUpload), date(visible), hidden, grants[[2]bool{c.Now.Friend, c.Now.Family}], verdict}
}

// proof says why no contact beyond has a newer visible photo.
func (a Answer) proof() string {
	proof, newest := a.Trace.Proof, uint64(0)
	if proof == ByWalk && a.Trace.Bound == 0 {
		proof = byWholeWalk
	}
	if len(a.Photos) > 0 {
		newest = a.Photos[0].DateUpload
	}
	return strings.NewReplacer("NEWEST", date(newest), "BOUND", date(a.Trace.Bound)).Replace(proofs[proof])
}
