package recent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Explanation holds the facts of one read, for operators: the viewer may not know them.
type Explanation struct {
	Answer // its Trace has the proof, the walk and the timings

	// Candidates are the members of the set, in its order. When the walk chose a
	// contact that is none of them, that one comes last.
	Candidates []Candidate
}

// Candidate is what a read found out about a contact, and what was looked up after it.
type Candidate struct {
	Examined

	InSet bool            // false: it has no score
	Now   contacts.Detail // how it stood with the viewer a moment after the read
}

// Explain is [Reader.Read] with one more statement, the step "details", for how the
// candidates stand with the viewer.
func (r *Reader) Explain(ctx context.Context, v contacts.Viewer, limit int) (Explanation, error) {
	a, err := r.Read(ctx, v, limit)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Answer: a}
	for _, c := range a.Trace.Candidates {
		e.Candidates = append(e.Candidates, Candidate{Examined: c, InSet: !c.Broadcast})
	}
	if a.Contact != nil && len(a.Photos) > 0 && !slices.ContainsFunc(a.Trace.Candidates, func(c Examined) bool { return c.Contact == a.Contact.ID }) {
		chosen := Examined{Contact: a.Contact.ID, Newest: a.Photos[0].DateUpload, NewestID: a.Photos[0].ID, Verdict: Chosen}
		e.Candidates = append(e.Candidates, Candidate{Examined: chosen})
	}
	if len(e.Candidates) == 0 {
		return e, nil
	}
	owners := make([]member.ID, len(e.Candidates))
	for i, c := range e.Candidates {
		owners[i] = c.Contact
	}
	start := time.Now()
	details, err := r.store.Details(ctx, v, owners)
	if err != nil {
		return Explanation{}, fmt.Errorf("explaining the answer for %s: %w", v.ID, err)
	}
	e.Trace.Steps = append(e.Trace.Steps, Step{Name: "details", Took: time.Since(start)})
	for i := range e.Candidates {
		c := &e.Candidates[i]
		c.Now = details[i]
		if c.Verdict == Nothing && (c.Now.Blocks || c.Now.Blocked) {
			c.Verdict = Blocked
		}
	}
	return e, nil
}
