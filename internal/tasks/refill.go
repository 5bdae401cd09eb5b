package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// Refill is the kind that reads the member's most recent contacts into its set, or
// deletes the set if it is no member.
const Refill = "refill"

var refill = kind{
	Name: Refill, Workers: queue.Workers{Queue: QueueRefill, Count: 2, Batch: 128}, Ordered: true, Produced: true, Changes: OwnSet,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		_, err := decode[struct{}](payload)
		return fmt.Sprintf("refill:%d", of), err
	},
	Handler: func(w work) queue.Handler { return RefillHandler(w) },
}

// NewRefill asks to read the most recent contacts of user into its set. The set is deleted
// when there are none, or user is no member.
func NewRefill(user member.ID) queue.New { return refill.task(user, struct{}{}) }

// RefillHandler handles refill: it reads a user's most recent contacts into the
// set, and takes members out that are no contacts any more, with two queries for all users.
type RefillHandler work

// Handle implements [queue.Handler].
func (h RefillHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	var users []member.ID
	for _, key := range keys(batch) {
		users = append(users, member.ID(key))
	}
	failed := h.Refill(ctx, users)
	all := make([]queue.Outcome, len(batch))
	for i, t := range batch {
		all[i].Err = failed[member.ID(t.Key)]
	}
	return all
}

// Refill refills the sets of users, each of whom may come only once, and returns the errors of users whose set could
// not be refilled. A user for which MySQL gives up fails alone.
func (h RefillHandler) Refill(ctx context.Context, users []member.ID) (failed map[member.ID]error) {
	failed = make(map[member.ID]error)
	alone, err := Apart(users, func(ids []member.ID) error {
		bad := guarded(ctx, h.Index, h.ConflictPause, ids, h.plan)
		for _, id := range ids {
			if len(bad) == len(ids) && !IsAway(bad[id]) { // a set that is away speaks for itself alone
				return bad[id]
			}
		}
		maps.Copy(failed, bad)
		return nil
	})
	if err != nil {
		failWith(failed, users, err)
	}
	maps.Copy(failed, alone)
	return failed
}

func (h RefillHandler) plan(ctx context.Context, updates []index.Update) ([]index.Change, error) {
	changes := make([]index.Change, len(updates))
	var pairs []contacts.Pair
	for i, u := range updates {
		changes[i] = index.Change{Update: u, WithRefill: true}
		for _, e := range u.Members {
			pairs = append(pairs, contacts.Pair{User: u.Member, Contact: e.Contact})
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
// that are higher than they should be: an Add never lowers a score.
func mend(changes []index.Change, now map[contacts.Pair]uint64) {
	for i := range changes {
		c := &changes[i]
		for _, e := range c.Members {
			lastUpload, isContact := now[contacts.Pair{User: c.Member, Contact: e.Contact}]
			switch {
			case !isContact || lastUpload == 0: // a contact that never uploaded has nothing to show
				c.Remove = append(c.Remove, e.Contact)
			case lastUpload < e.Score:
				c.Correct = append(c.Correct, index.Correction{Contact: e.Contact, Seen: e.Score, Score: lastUpload})
			}
		}
	}
}
