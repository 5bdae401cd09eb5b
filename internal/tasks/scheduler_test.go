package tasks_test

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// actor is one run of a handler, on a goroutine of its own. It stands still
// before and after each call that it makes, and runs on only while the scheduler
// waits for it; so a schedule depends on the scheduler's choices alone.
type actor struct {
	batch   []tasks.Task
	parked  chan struct{} // receives each time it stands still; closed when the handler has returned
	resume  chan error    // nil: go on; an error: the call fails with it
	errs    []error       // what the handler returned
	crashed bool
	begun   map[member.ID]int // the writes to each set when its update began
	writing bool              // it stands before a call that writes to a set
	drowsy  bool              // it falls asleep there
}

// errCrashed is what a call of a crashed actor returns. Whether the call took
// effect depends on whether the actor stood before or after it.
var errCrashed = errors.New("the process crashed here")

type actorKey struct{}

// startActor runs the handler up to its first call.
func startActor(ctx context.Context, h tasks.Handler, batch []tasks.Task) *actor {
	a := &actor{batch: batch, parked: make(chan struct{}), resume: make(chan error), begun: map[member.ID]int{}}
	go func() {
		defer close(a.parked)
		a.errs = h.Handle(context.WithValue(ctx, actorKey{}, a), batch)
	}()
	return a
}

// settled waits until the actor stands still, and tells whether it has returned.
func (a *actor) settled() (returned bool) {
	_, more := <-a.parked
	return !more
}

// step lets the actor go on to its next stop, and tells whether it has returned.
func (a *actor) step(err error) (returned bool) {
	a.resume <- err
	return a.settled()
}

// crash fails every further call of the actor until it has returned.
func (a *actor) crash() {
	a.crashed = true
	for returned := false; !returned; {
		returned = a.step(errCrashed)
	}
}

// asleep tells whether the scheduler shall let it stand.
func (a *actor) asleep() bool { return a.drowsy && a.writing }

func (a *actor) park(writing bool) error {
	a.writing = writing
	a.parked <- struct{}{}
	return <-a.resume
}

// acting makes a call of the actor that ctx belongs to. Without one, as in the
// preparation of a schedule, it is a plain call.
func acting[T any](ctx context.Context, writing bool, call func() (T, error)) (T, error) {
	a, ok := ctx.Value(actorKey{}).(*actor)
	if !ok {
		return call()
	}
	var none T
	if err := a.park(writing); err != nil {
		return none, err
	}
	value, callErr := call()
	if err := a.park(false); err != nil {
		return none, err
	}
	return value, callErr
}

// actingIndex, actingStore and actingQueue stop actors at each call. They also
// order what the handlers leave in no order, so that a schedule can be replayed.
type (
	actingIndex struct{ tasks.Index }
	actingStore struct{ tasks.Store }
	actingQueue struct{ tasks.Enqueuer }
)

func (x actingIndex) Begin(ctx context.Context, users []member.ID) ([]index.Update, error) {
	return acting(ctx, false, func() ([]index.Update, error) { return x.Index.Begin(ctx, users) })
}

func (x actingIndex) Apply(ctx context.Context, changes []index.Change) ([]index.Outcome, error) {
	return acting(ctx, true, func() ([]index.Outcome, error) { return x.Index.Apply(ctx, changes) })
}

func (x actingIndex) Add(ctx context.Context, additions []index.Addition) ([]member.ID, error) {
	slices.SortFunc(additions, func(a, b index.Addition) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Contact, b.Contact))
	})
	return acting(ctx, true, func() ([]member.ID, error) { return x.Index.Add(ctx, additions) })
}

func (s actingStore) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	return acting(ctx, false, func() (map[member.ID]uint64, error) { return s.Store.LastUploads(ctx, ids) })
}

func (s actingStore) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	return acting(ctx, false, func() (map[contacts.Pair]uint64, error) { return s.Store.Relations(ctx, pairs) })
}

func (s actingStore) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	return acting(ctx, false, func() (map[member.ID][]contacts.Contact, error) { return s.Store.TopContacts(ctx, users, limit) })
}

func (s actingStore) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	return acting(ctx, false, func() ([][]member.ID, error) { return s.Store.FollowerPages(ctx, pages, limit) })
}

func (q actingQueue) Enqueue(ctx context.Context, batch []tasks.New) ([]uint64, error) {
	slices.SortFunc(batch, func(a, b tasks.New) int { return cmp.Compare(a.DedupeKey, b.DedupeKey) })
	return acting(ctx, false, func() ([]uint64, error) { return q.Enqueuer.Enqueue(ctx, batch) })
}

func (q actingQueue) FanningOut(ctx context.Context, users []member.ID) (map[member.ID]bool, error) {
	return acting(ctx, false, func() (map[member.ID]bool, error) { return q.Enqueuer.FanningOut(ctx, users) })
}

func (q actingQueue) Absorb(ctx context.Context, held []tasks.Task) (int, error) {
	return acting(ctx, false, func() (int, error) { return q.Enqueuer.Absorb(ctx, held) })
}

// watchedIndex counts the writes to each set and its guard, and so knows a
// conflict that nobody caused: were there any, updates could keep each other
// from ever finishing.
type watchedIndex struct {
	tasks.Index
	writes    map[member.ID]int
	conflicts int
	violated  error
}

func (x *watchedIndex) Begin(ctx context.Context, users []member.ID) ([]index.Update, error) {
	updates, err := x.Index.Begin(ctx, users)
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		for _, user := range users {
			a.begun[user] = x.writes[user]
		}
	}
	return updates, err
}

func (x *watchedIndex) Apply(ctx context.Context, changes []index.Change) ([]index.Outcome, error) {
	outcomes, err := x.Index.Apply(ctx, changes)
	a, acted := ctx.Value(actorKey{}).(*actor)
	for i, outcome := range outcomes {
		user := changes[i].User
		switch {
		case outcome == index.Applied:
			x.writes[user]++
		case acted:
			x.conflicts++
			if a.begun[user] == x.writes[user] {
				x.violated = violation("an update of %s was in conflict though nobody had written", user)
			}
		}
	}
	return outcomes, err
}

func (x *watchedIndex) Add(ctx context.Context, additions []index.Addition) ([]member.ID, error) {
	for _, a := range additions {
		x.writes[a.User]++
	}
	return x.Index.Add(ctx, additions)
}
