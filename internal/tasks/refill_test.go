package tasks_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func TestARefillTakesTheMostRecentAndRemovesGhosts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 14)
	b.refill(viewer)
	b.holds(viewer, steps(3, 14)...)
	b.remove(viewer, 14)
	b.remove(viewer, 5)
	b.refill(viewer)
	b.holds(viewer, slices.Concat(steps(1, 4), steps(6, 13))...)
}

// Each conflict is followed by a new look, until an update comes through.
func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 9)
	b.refill(viewer)
	b.hooked.calls = nil
	gone := id(9)
	b.hooked.before = func(call string) error {
		if call == "Apply" && gone > 5 {
			b.remove(viewer, gone)
			b.elsewhere(tasks.NewRemoveContact(viewer, gone))
			gone--
		}
		return nil
	}
	b.refill(viewer)
	again := []string{"Begin", "Relations", "TopContacts", "Apply"}
	b.called(slices.Concat(again, again, again, again, again)...)
	b.holds(viewer, steps(1, 5)...)
}

// elsewhere does a task of a pair as another process would, past the hooks.
func (b *bench) elsewhere(n queue.New) {
	b.Helper()
	b.done(&tasks.PairHandler{Index: b.index, Store: b.site.Store}, n)
}

// Who never comes through gives way, and is tried again later.
func TestContentionWithoutEndIsTriedLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 3)
	b.ladder(viewer+1, 3)
	b.hooked.before = func(call string) error {
		if call == "Apply" {
			b.elsewhere(tasks.NewAddContact(viewer, 1))
		}
		return nil
	}
	errs := b.handle(b.refills, tasks.NewRefill(viewer), tasks.NewRefill(viewer+1))
	if kind := outcome(t, errs[0]); kind != "retried" {
		t.Errorf("the contended refill is %s (%v), want retried", kind, errs[0])
	}
	b.must(errs[1]) // it is not held up
	b.holds(viewer+1, steps(1, 3)...)
}

func TestAWaitForConflictsEndsWithTheContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	b.refills.ConflictPause = time.Minute
	b.hooked.before = func(call string) error {
		if call == "Apply" {
			b.elsewhere(tasks.NewAddContact(viewer, 1))
			cancel(stop)
		}
		return nil
	}
	errs := queuetest.Errors(b.refills.Handle(ctx, []queue.Task{{ID: 1, Kind: tasks.Refill, Key: uint64(viewer)}}))
	if !errors.Is(errs[0], stop) {
		t.Errorf("err %v, want the cause", errs[0])
	}
}

// Whichever server is away, and at whichever call, the error says so.
func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	callsOf := map[string][]string{
		"pairs":   {"Begin", "Relations", "TopContacts", "Apply"},
		"refills": {"Begin", "Relations", "TopContacts", "Apply"},
		"uploads": {"Active", "Dedupe", "LastUploads", "FollowerPages", "Enqueue", "Add"},
	}
	for name, calls := range callsOf {
		for _, call := range calls {
			for _, class := range []error{index.ErrUnavailable, index.ErrSettings, mysql.ErrUnavailable, errors.New("another")} {
				b := newBench(t)
				b.uploads.PartSize = 1
				b.contact(viewer, star, 50)
				b.hooked.before = func(c string) error {
					if c == call {
						return class
					}
					return nil
				}
				h := map[string]queue.Handler{"pairs": b.pairs, "refills": b.refills, "uploads": b.uploads}[name]
				errs := queuetest.Errors(h.Handle(t.Context(), []queue.Task{
					{ID: 1, Key: uint64(star), Kind: tasks.Upload, Payload: []byte(`{"contact_id":"50"}`)},
					{ID: 2, Key: uint64(viewer), Kind: tasks.Upload, Payload: []byte(`{"contact_id":"50"}`)},
				}))
				if call == "Add" && errors.Is(class, index.ErrUnavailable) {
					continue // the page comes again
				}
				if len(errs) != 2 || !errors.Is(errs[0], class) && !errors.Is(errs[1], class) {
					t.Errorf("%s, %s: errors %v, want %v", name, call, errs, class)
				}
			}
		}
	}
}

// A set that is away postpones its own refill alone, also where MySQL gives up all others until each is alone.
func TestASetThatIsAwaySpeaksForItselfAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	away, big, small := viewer, viewer+1, viewer+2
	for _, user := range []member.ID{away, big, small} {
		b.ladder(user, 3)
	}
	b.hooked.away = []member.ID{away}
	calls := 0
	b.hooked.before = func(call string) error {
		if call == "TopContacts" {
			if calls++; calls <= 2 { // all, then big alone
				return errors.New("too many rows")
			}
		}
		return nil
	}
	errs := b.handle(b.refills, tasks.NewRefill(away), tasks.NewRefill(big), tasks.NewRefill(small))
	if !errors.Is(errs[0], index.ErrUnavailable) || errs[1] == nil || tasks.IsAway(errs[1]) {
		t.Errorf("errors %v, want that the first is away, and the second failed", errs)
	}
	b.must(errs[2])
	b.hooked.away = nil
	b.holds(small, steps(1, 3)...)
}

// outcome tells what a queue makes of a handler's error.
func outcome(t *testing.T, err error) string {
	t.Helper()
	now := time.Now()
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, func() time.Time { return now })
	enqueue(t, q, tasks.NewUpload(1))
	finish(t, q, err, claim(t, q, 1)...)
	now = now.Add(time.Hour)
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := claim(t, q, 1)
	c, countErr := queuetest.Count(t.Context(), q)
	switch {
	case countErr != nil:
		t.Fatal(countErr)
	case c.Dead == 1:
		return "dead"
	case len(again) == 0:
		return "done"
	case again[0].Attempts == 1:
		return "postponed"
	}
	return "retried"
}

// The set of who is no member goes whole, whatever rows of contacts are left and whatever
// came in since the update began; and no task makes it again.
func TestTheSetOfADeletedMemberIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.must(b.site.AddMember(b.Context(), viewer, "viewer"))
	b.ladder(viewer, 14)
	b.refill(viewer)
	b.once("Apply", func() {
		b.upload(2, 5000) // it was cut off, and comes in
		b.done(b.uploads, tasks.NewUpload(2))
	})
	b.site.Store.DeleteMember(viewer)
	for _, e := range steps(1, 14) {
		b.site.Store.SetContact(viewer, e.Contact, false, false)
	}
	b.refill(viewer)
	b.holds(viewer)
	b.done(b.pairs, tasks.NewAddContact(viewer, 3))
	b.done(b.uploads, tasks.NewUpload(2))
	b.refill(viewer)
	b.holds(viewer)
	b.must(b.site.AddMember(b.Context(), viewer, "viewer"))
	b.refill(viewer)
	b.holds(viewer, append(steps(4, 14), index.Entry{Contact: 2, Score: 5000})...)
}
