package tasks

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
)

// RefillHandler handles refill: it reads a user's most recent contacts into the
// set, and takes members out that are no contacts any more. Many users cost one
// query for each of the two.
type RefillHandler struct {
	Index Index
	Store Store
	// Observer is told of conflicts and refills; nil: nobody.
	Observer Observer
}

// Handle returns an error for each task, nil where it is done.
func (h *RefillHandler) Handle(ctx context.Context, batch []Task) []error {
	return resultsBySubject(batch, guarded(ctx, h.Index, h.Observer, subjects(batch), h.plan))
}

func (h *RefillHandler) plan(ctx context.Context, updates []index.Update) ([]index.Change, error) {
	changes := make([]index.Change, len(updates))
	var pairs []contacts.Pair
	for i, u := range updates {
		changes[i] = index.Change{Update: u, WithRefill: true}
		for _, e := range u.Members {
			pairs = append(pairs, contacts.Pair{User: u.User, Contact: e.Contact})
		}
	}
	if len(pairs) > 0 {
		now, err := h.Store.Relations(ctx, pairs)
		if err != nil {
			return nil, fmt.Errorf("look at %d members of sets: %w", len(pairs), err)
		}
		mend(changes, now)
	}
	all := func(index.Change) bool { return true }
	err := addRefills(ctx, h.Store, h.Index.Settings().Max, changes, all)
	return changes, err
}

// mend removes the members that are no contacts any more, and lowers the scores
// that are higher than they should be, which no add would.
func mend(changes []index.Change, now map[contacts.Pair]uint64) {
	for i := range changes {
		c := &changes[i]
		for _, e := range c.Members {
			lastUpload, isContact := now[contacts.Pair{User: c.User, Contact: e.Contact}]
			switch {
			case !isContact || lastUpload == 0: // whoever never uploaded has nothing to show
				c.Remove = append(c.Remove, e.Contact)
			case lastUpload < e.Score:
				c.Correct = append(c.Correct, index.Correction{Contact: e.Contact, Seen: e.Score, Score: lastUpload})
			}
		}
	}
}
