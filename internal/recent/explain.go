package recent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// OperatorExplanation tells everything about an answer, what the viewer must not
// know included.
type OperatorExplanation struct {
	// Candidates are the members of the set, in its order. When the walk chose a
	// contact that is none of them, that one comes last.
	Candidates []Candidate
	Proof      string           // why nobody else can have won, in a sentence
	Walk       *WalkExplanation // nil: no walk was needed
	Steps      []Step           // those of the read, and then "details", which looked at the candidates
}

// Candidate is what the read found out about a contact, and what is to be said of
// it besides.
type Candidate struct {
	Examined

	InSet bool   // false: it has no score
	Why   string // the reason for the verdict, in a clause
	// Now is how it stood with the viewer when the explanation was made, a moment
	// after the read, which asked for no more than it needed. nil: nobody looked.
	Now *contacts.Detail
}

// WalkExplanation tells why a walk was needed, how far it went and why it stopped.
type WalkExplanation struct {
	contacts.WalkTrace

	Reason  string // see [SetMissing] and its like
	Stopped string // why, in a sentence
}

// ToOperator explains the answer to somebody who may know everything. The read
// that is explained is the one that gave the answer; one statement more looks at
// its candidates as they are now. It fails as [Reader.Read] does.
func (a Answer) ToOperator(ctx context.Context) (OperatorExplanation, error) {
	e := OperatorExplanation{Steps: slices.Clone(a.Trace.Steps), Proof: a.proof()}
	for _, c := range a.Trace.Candidates {
		e.Candidates = append(e.Candidates, Candidate{Examined: c, InSet: true})
	}
	if newest, ok := a.newest(); ok && !slices.ContainsFunc(a.Trace.Candidates, a.chose) {
		chosen := Examined{Contact: a.Contact.ID, Newest: newest.DateUpload, NewestID: newest.ID, Verdict: Chosen}
		e.Candidates = append(e.Candidates, Candidate{Examined: chosen})
	}
	if a.from != nil && len(e.Candidates) > 0 {
		start := time.Now()
		if err := a.lookUp(ctx, e.Candidates); err != nil {
			return OperatorExplanation{}, fmt.Errorf("explaining the answer for %s: %w", a.viewer.ID, err)
		}
		e.Steps = append(e.Steps, Step{Name: "details", Took: time.Since(start)})
	}
	for i := range e.Candidates {
		e.Candidates[i].judge(a)
	}
	if a.Source == FromDatabase {
		e.Walk = &WalkExplanation{WalkTrace: a.Trace.Walk, Reason: a.Trace.WalkReason, Stopped: a.stopped()}
	}
	return e, nil
}

// lookUp fills in how the candidates stand with the viewer now.
func (a Answer) lookUp(ctx context.Context, candidates []Candidate) error {
	owners := make([]member.ID, len(candidates))
	for i, c := range candidates {
		owners[i] = c.Contact
	}
	details, err := a.from.store.Details(ctx, a.viewer, owners)
	if err != nil {
		return err
	}
	for i := range details {
		candidates[i].Now = &details[i]
	}
	return nil
}

func (a Answer) chose(c Examined) bool { return a.Contact != nil && c.Contact == a.Contact.ID }

// newest returns the photo that decided, if there is anything to show.
func (a Answer) newest() (contacts.Photo, bool) {
	if a.Contact == nil || len(a.Photos) == 0 {
		return contacts.Photo{}, false
	}
	return contacts.Photo{ID: a.Photos[0].ID, DateUpload: a.Photos[0].DateUpload}, true
}

// judge gives the reason for the verdict, and tells a block from having nothing
// to show, which the read does not.
func (c *Candidate) judge(a Answer) {
	if c.Verdict == Nothing && c.Now != nil && c.Now.Blocks {
		c.Verdict = Blocked
	}
	switch c.Verdict {
	case Chosen:
		c.Why = c.whyChosen()
	case Older, Newer:
		c.Why = c.whyOlder(a)
	case Nothing:
		c.Why = c.whyNothing()
	case Blocked:
		c.Why = "it blocks the viewer"
	case NotContact:
		c.Why = c.whyNotContact()
	case NotLooked:
		c.Why = whyNotLooked(a)
	}
}
