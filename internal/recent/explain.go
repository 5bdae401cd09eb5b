package recent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Trace is how an answer was found. It is for operators: a score is the date of an upload, perhaps of a photo that the
// viewer may not see.
type Trace struct {
	Candidates []Candidate `json:"candidates"` // as [Answer.Candidates] has them; nil but for [Reader.Explain]
	Proof      Proof       `json:"proof"`
	// Bound is in unix seconds: no contact that was not looked at has uploaded later. 0: all were looked at.
	Bound      uint64             `json:"bound"`
	WalkReason Reason             `json:"walk_reason,omitzero"` // "": no walk was needed
	Walk       contacts.WalkTrace `json:"walk,omitzero"`
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

// Proof is why no contact beyond has a newer visible photo, in words; see the package documentation.
type Proof string

// The proofs of an answer.
const (
	ByNext   Proof = "the newest visible photo of the first candidate is newer than the bound, and so than the last upload of each other contact"
	ByLowest Proof = "the newest visible photo of all candidates is newer than the bound, and so than the last upload of each contact that is no candidate"
	ByAll    Proof = "the candidates are all contacts that ever uploaded, and no other has a newer visible photo"
	ByWalk   Proof = "the walk looked at each contact that uploaded after the bound; the newest visible photo that it found, if any, is newer"
)

// Reason is why a read walks: the candidates prove no answer. It is a label of metrics, too, which docs/operate.md explains.
type Reason string

// The reasons for a walk.
const (
	NoContacts       Reason = "no_contacts" // and so nothing to walk through, and no set
	SetMissing       Reason = "set_missing"
	SetMalformed     Reason = "set_malformed"
	OtherSettings    Reason = "other_settings"
	RedisUnavailable Reason = "redis_unavailable"
	SetUnknown       Reason = "set_unknown" // Redis came back with data that may be old, which are being deleted
	WritesRefused    Reason = "writes_refused"
	NothingVisible   Reason = "nothing_visible" // no candidate shows a photo
	BestTooOld       Reason = "best_too_old"    // the best candidate's photo is not newer than the bound
	PhotosChanged    Reason = "photos_changed"
)

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

// Explain is [Reader.Read] with a further statement, for how the candidates stand with the viewer.
func (r *Reader) Explain(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	a, err := r.Read(ctx, v, limit)
	if err != nil {
		return Answer{}, err
	}
	a.Trace.Candidates = a.Candidates()
	if len(a.Trace.Candidates) == 0 {
		return a, nil
	}
	owners := make([]member.ID, len(a.Trace.Candidates))
	for i, c := range a.Trace.Candidates {
		owners[i] = c.Contact
	}
	details, err := r.store.Details(ctx, v, owners)
	if err != nil {
		return Answer{}, fmt.Errorf("explaining the answer for %s: %w", v.ID, err)
	}
	for i, d := range details {
		c := &a.Trace.Candidates[i]
		c.Now = &d
		if c.Verdict == Nothing && (d.Blocks || d.Blocked) {
			c.Verdict = Blocked
		}
	}
	return a, nil
}

// Candidates are the set, and the broadcast members that the read found, most recent upload first; at the end is the
// contact that a walk chose, if it is neither.
func (a Answer) Candidates() []Candidate {
	list := make([]Candidate, 0, len(a.set)+len(a.broadcasts)) // [] in JSON
	of := func(id member.ID) *Candidate {
		i := slices.IndexFunc(list, func(c Candidate) bool { return c.Contact == id })
		if i < 0 {
			i, list = len(list), append(list, Candidate{Contact: id, Verdict: NotLooked})
		}
		return &list[i]
	}
	for _, e := range a.set {
		c := of(e.Contact)
		c.InSet, c.Score = true, e.Score
	}
	for _, b := range a.broadcasts {
		c := of(b.ID)
		c.Broadcast, c.Score = true, max(c.Score, b.LastUpload)
	}
	slices.SortStableFunc(list, func(x, y Candidate) int { return cmp.Compare(y.Score, x.Score) })
	for _, s := range a.standings {
		c := of(s.Owner)
		if c.Verdict = Nothing; !s.IsContact {
			c.Verdict = NotContact
		} else if s.Newest != nil {
			c.Verdict, c.Newest = Older, *s.Newest
		}
	}
	if a.Contact != nil {
		c := of(a.Contact.ID)
		c.Verdict, c.Newest = Chosen, contacts.Photo{ID: a.Photos[0].ID, DateUpload: a.Photos[0].DateUpload}
	}
	return list
}

// Explanation is an answer of [Reader.Explain] in words.
type Explanation struct {
	Headline   string
	Head       []string    // the columns of the table of candidates
	Candidates [][]string  // its rows
	Facts      [][2]string // names and values: the proof, the walk, how far behind the sets may be
}

// Explanation tells the answer to viewer, and why. behind is how far behind the sets may be, in seconds; nil: that does
// not matter, or is not known.
func (a Answer) Explanation(viewer member.ID, behind *float64) Explanation {
	t := a.Trace
	x := Explanation{
		Headline: fmt.Sprintf("%s sees nothing, from the %s", viewer, a.Source),
		Head:     []string{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"},
		Facts:    [][2]string{{"proof", string(t.Proof)}, {"bound", date(t.Bound)}},
	}
	if a.Contact != nil {
		x.Headline = fmt.Sprintf("%s sees %s (%q), from the %s; photos: %d, newest: %s",
			viewer, a.Contact.ID, a.Contact.Username, a.Source, len(a.Photos), date(a.Photos[0].DateUpload))
	}
	for _, c := range t.Candidates {
		x.Candidates = append(x.Candidates, c.cells())
	}
	if t.WalkReason != "" {
		walk := fmt.Sprintf("%s; contacts looked at: %d, statements: %d", t.WalkReason, t.Walk.LookedAt, t.Walk.Statements)
		x.Facts = append(x.Facts, [2]string{"walk", walk})
	}
	if behind != nil {
		x.Facts = append(x.Facts, [2]string{"behind", fmt.Sprintf("by up to %.1f s, the wait of the oldest task that may change a set", *behind)})
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

// cells are the row of a candidate.
func (c Candidate) cells() []string {
	visible, hidden, verdict := c.Newest.DateUpload, "-", string(c.Verdict)
	if c.Verdict == NotLooked && c.Now.Newest != nil {
		visible = c.Now.Newest.DateUpload
	}
	if h := c.Now.Hidden; h != nil {
		hidden = fmt.Sprintf("%s %s", date(h.DateUpload), h.Visibility)
	}
	if c.Broadcast && !c.InSet {
		verdict += ": a broadcast member"
	} else if !c.InSet {
		verdict += ": found by the walk"
	}
	grants := map[[2]bool]string{{true, true}: "friend,family", {true, false}: "friend", {false, true}: "family", {}: "-"}
	return []string{
		fmt.Sprintf("%s (%q)", c.Contact, c.Now.Username), date(c.Score), date(c.Now.LastUpload), date(visible), hidden,
		grants[[2]bool{c.Now.Friend, c.Now.Family}], verdict,
	}
}
