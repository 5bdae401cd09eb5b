package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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
	members := func(u index.Update) (ids []member.ID) {
		for _, e := range u.Members {
			ids = append(ids, e.Contact)
		}
		return ids
	}
	conclude := func(c *index.Change) { c.WithRefill, c.Add = true, nil } // the refill has the members that uploaded last
	return work(h).plan(ctx, updates, members, conclude, func(index.Change) bool { return true })
}
