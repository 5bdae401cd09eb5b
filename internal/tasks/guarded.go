package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// Index is the sets, for handlers.
type Index interface {
	Settings() index.Settings
	Look(ctx context.Context, users []member.ID) []index.Set
	Begin(ctx context.Context, users []member.ID) []index.Update
	Apply(ctx context.Context, changes []index.Change) []index.Result
	Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error)
	// NodeOf names the node of a user's set, and reports whether it can be written to now.
	NodeOf(user member.ID) (node string, isUsable bool)
}

// Store is the truth, for handlers. It must be the primary, never a replica that lags: a task is done as soon as the
// index agrees with the rows that were read.
type Store interface {
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
	CountMembers(ctx context.Context, first, last member.ID) (int64, error)
	NthMember(ctx context.Context, after member.ID, n int64) (member.ID, error)
	LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error)
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
	Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error)
	AddBroadcast(ctx context.Context, id member.ID, named bool) error
	RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error
	LeaveBroadcast(ctx context.Context, id member.ID) (contacts.Broadcast, error)
	DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error
	HasFollowers(ctx context.Context, id member.ID, n int) (bool, error)
}

// planner computes, from MySQL, the change that each begun update has to make.
// It must return a change for each update, even an empty change: applying it ends
// the updates that read MySQL earlier.
type planner func(ctx context.Context, updates []index.Update) ([]index.Change, error)

// guardedTries bounds how often a batch begins again after conflicts.
const guardedTries = 20

// DefaultConflictPause is the default of HandlerOptions.ConflictPause.
const DefaultConflictPause = 4 * time.Millisecond

// ErrContended says that an update of the same set by another task came first, every time. It
// may be otherwise the next time.
var ErrContended = errors.New("other updates of the set always came first")

// guarded runs the guarded update of package index for many users at once:
// begin, plan, apply; and again, after a short random wait, for users in
// conflict. It returns the error of each user whose set could not be updated: it holds
// up no other user. An error of plan is the error of all users of that call.
func guarded(
	ctx context.Context, ix Index, pause time.Duration, users []member.ID, plan planner,
) (failed map[member.ID]error) {
	pause = max(0, cmp.Or(pause, DefaultConflictPause))
	failed = make(map[member.ID]error)
	open := users
	for try := 1; len(open) > 0; try++ {
		open = guardedOnce(ctx, ix, open, plan, failed)
		switch {
		case len(open) > 0 && try == guardedTries:
			failWith(failed, open, ErrContended)
			return failed
		case len(open) > 0 && pause > 0:
			if err := retry.Sleep(ctx, retry.Jitter(time.Duration(try)*pause)); err != nil {
				failWith(failed, open, err)
				return failed
			}
		}
	}
	return failed
}

func failWith(failed map[member.ID]error, users []member.ID, err error) {
	for _, user := range users {
		failed[user] = err
	}
}

// guardedOnce returns the users whose update conflicted, and adds the errors of users to
// failed.
func guardedOnce(
	ctx context.Context, ix Index, users []member.ID, plan planner, failed map[member.ID]error,
) (again []member.ID) {
	var begun []index.Update
	for _, u := range ix.Begin(ctx, users) {
		if u.Err != nil {
			failed[u.Member] = u.Err
		} else {
			begun = append(begun, u)
		}
	}
	if len(begun) == 0 {
		return nil
	}
	changes, err := plan(ctx, begun)
	if err != nil {
		for _, u := range begun {
			failed[u.Member] = err
		}
		return nil
	}
	for i, r := range ix.Apply(ctx, changes) {
		switch user := changes[i].Member; {
		case r.Err != nil:
			failed[user] = r.Err
		case r.Outcome == index.Conflict:
			again = append(again, user)
		case changes[i].Refill != nil: // it was read, even if it found no contact
			refills.Inc()
		}
	}
	guardConflicts.Add(float64(len(again)))
	return again
}

// addRefills reads the most recent contacts for the changes that want them, in
// a single query.
func addRefills(ctx context.Context, store Store, limit int, changes []index.Change, wants func(index.Change) bool) error {
	var users []member.ID
	for _, c := range changes {
		if wants(c) {
			users = append(users, c.Member)
		}
	}
	if len(users) == 0 {
		return nil
	}
	top, err := store.TopContacts(ctx, users, limit)
	if err != nil {
		return fmt.Errorf("refill %d sets: %w", len(users), err)
	}
	for i := range changes {
		if wants(changes[i]) {
			changes[i].Refill = entries(top[changes[i].Member])
		}
	}
	return nil
}

func entries(list []contacts.Contact) []index.Entry {
	out := make([]index.Entry, len(list))
	for i, c := range list {
		out[i] = index.Entry{Contact: c.ID, Score: c.LastUpload}
	}
	return out
}

// keys returns the keys of a batch, each once, in order.
func keys(batch []queue.Task) []uint64 {
	seen := make(map[uint64]struct{}, len(batch))
	for _, t := range batch {
		seen[t.Key] = struct{}{}
	}
	return slices.Sorted(maps.Keys(seen))
}
