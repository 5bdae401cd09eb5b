package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// actor is a run of a handler, or a read, on a goroutine of its own. It stands still before and after each of
// its calls, and runs on only while the scheduler waits for it. A history therefore depends on the
// scheduler's choices alone.
type actor struct {
	resume chan error    // nil: go on; an error: the call fails with it
	moved  chan struct{} // notified each time it stands still or has ended; nil in a bubble

	// The running side owns these fields: the actor, or the scheduler while the actor stands.
	standing bool
	ended    bool
	at       place
	crashed  bool
	panicked error

	// Of a handler:
	batch    []queue.Task
	outcomes []queue.Outcome   // of the handler
	begun    map[member.ID]int // the writes to each set when its update began
	drowsy   bool              // it falls asleep before it writes

	// Of a read:
	request *request
}

// place is where an actor stands: before or after a call.
type place struct {
	call    string
	after   bool
	writing bool // the call writes to sets
}

func (p place) String() string {
	if p.after {
		return "after " + p.call
	}
	return "before " + p.call
}

// errCrashed is the error of each call of a crashed actor. The call took effect if the actor stood after it,
// and did not if the actor stood before it.
var errCrashed = errors.New("the process crashed here")

type actorKey struct{}

// start runs the actor up to its first call.
func (a *actor) start(ctx context.Context, settle func(*actor), work func(ctx context.Context)) {
	a.resume, a.begun = make(chan error), map[member.ID]int{}
	go func() {
		defer func() {
			if value := recover(); value != nil {
				a.panicked = violation("panic: %v\n%s", value, debug.Stack())
			}
			a.ended = true
			a.tell()
		}()
		work(context.WithValue(ctx, actorKey{}, a))
	}()
	settle(a)
}

func (a *actor) tell() {
	if a.moved != nil {
		a.moved <- struct{}{}
	}
}

// step lets an actor that stands go on to its next stop.
func (a *actor) step(settle func(*actor), err error) {
	a.standing = false
	a.resume <- err
	settle(a)
}

// asleep reports whether the scheduler shall let it stand.
func (a *actor) asleep() bool { return a.drowsy && a.standing && a.at.writing }

func (a *actor) park(at place) error {
	a.at, a.standing = at, true
	a.tell()
	return <-a.resume
}

// settleAlone waits for an actor that waits for no actor itself.
func settleAlone(a *actor) { <-a.moved }

// acting makes a call of the actor that ctx belongs to. Without an actor, as in the preparation of a history,
// it is a plain call.
func acting[T any](ctx context.Context, name string, writing bool, call func() (T, error)) (T, error) {
	a, ok := ctx.Value(actorKey{}).(*actor)
	if !ok {
		return call()
	}
	var none T
	if err := a.park(place{call: name, writing: writing}); err != nil {
		return none, err
	}
	value, callErr := call()
	if err := a.park(place{call: name, after: true}); err != nil {
		return none, err
	}
	return value, callErr
}

// actingIndex, actingStore and actingQueue stop actors at each call. They also sort the handlers' unordered
// arguments, so that a history can be replayed.
type (
	actingIndex struct{ sets }
	actingStore struct{ store }
	actingQueue struct{ tasks.Enqueuer }
)

func (x actingIndex) Begin(ctx context.Context, users []member.ID) []index.Update {
	updates, err := acting(ctx, "Begin", false, func() ([]index.Update, error) { return x.sets.Begin(ctx, users), nil })
	if err != nil {
		updates = make([]index.Update, len(users))
		for i, user := range users {
			updates[i] = index.Update{Member: user, Err: err}
		}
	}
	return updates
}

func (x actingIndex) Apply(ctx context.Context, changes []index.Change) []index.Result {
	results, err := acting(ctx, "Apply", true, func() ([]index.Result, error) { return x.sets.Apply(ctx, changes), nil })
	if err != nil {
		results = slices.Repeat([]index.Result{{Err: err}}, len(changes))
	}
	return results
}

func (x actingIndex) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	slices.SortFunc(additions, func(a, b index.Addition) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Contact, b.Contact))
	})
	missing, err := acting(ctx, "Add", true, func() (missing []member.ID, _ error) {
		missing, failed = x.sets.Add(ctx, additions)
		return missing, nil
	})
	if err != nil {
		failed = make(map[member.ID]error)
		for _, a := range additions {
			failed[a.Member] = err
		}
	}
	return missing, failed
}

func (x actingIndex) Candidates(ctx context.Context, user member.ID) ([]index.Entry, error) {
	return acting(ctx, "Candidates", false, func() (entries []index.Entry, err error) {
		if r, ok := ctx.Value(requestKey{}).(*request); ok && r.fault != nil {
			return nil, fmt.Errorf("candidates of %s: %w", user, r.fault)
		}
		return x.sets.Candidates(ctx, user)
	})
}

func (s actingStore) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	return acting(ctx, "LastUploads", false, func() (map[member.ID]uint64, error) { return s.store.LastUploads(ctx, ids) })
}

func (s actingStore) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	return acting(ctx, "Relations", false, func() (map[contacts.Pair]uint64, error) { return s.store.Relations(ctx, pairs) })
}

func (s actingStore) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	return acting(ctx, "TopContacts", false, func() (map[member.ID][]contacts.Contact, error) {
		return s.store.TopContacts(ctx, users, limit)
	})
}

func (s actingStore) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	return acting(ctx, "FollowerPages", false, func() ([][]member.ID, error) { return s.store.FollowerPages(ctx, pages, limit) })
}

func (s actingStore) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	return acting(ctx, "Look", false, func() (contacts.Look, error) { return s.store.Look(ctx, v, owner, limit, bound) })
}

func (s actingStore) Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error) {
	return acting(ctx, "Compare", false, func() (contacts.Comparison, error) { return s.store.Compare(ctx, v, owners, bound) })
}

func (s actingStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	return acting(ctx, "Walk", false, func() (contacts.Walked, error) { return s.store.Walk(ctx, v, limit) })
}

func (q actingQueue) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	slices.SortFunc(batch, func(a, b queue.New) int { return cmp.Compare(a.DedupeKey, b.DedupeKey) })
	return acting(ctx, "Enqueue", false, func() ([]uint64, error) { return q.Enqueuer.Enqueue(ctx, batch) })
}

func (q actingQueue) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	return acting(ctx, "Active", false, func() (map[uint64]bool, error) { return q.Enqueuer.Active(ctx, kind, keys) })
}

func (q actingQueue) Dedupe(ctx context.Context, held []queue.Task) (int, error) {
	return acting(ctx, "Dedupe", false, func() (int, error) { return q.Enqueuer.Dedupe(ctx, held) })
}

func isCrash(err error) bool { return errors.Is(err, errCrashed) }
