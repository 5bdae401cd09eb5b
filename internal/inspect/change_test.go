package inspect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

var errBoom = errors.New("boom")

// makeDead makes n dead tasks.
func makeDead(t *testing.T, n int) (q *queuetest.Memory, dead queue.Filter) {
	t.Helper()
	q = queuetest.NewMemory(queue.Options{}, time.Now)
	for i := range n {
		queuetest.Enqueue(t, q, queue.New{Kind: "mail", Key: uint64(i)})
	}
	bury(t, q)
	return q, queue.Filter{States: []queue.State{queue.Dead}}
}

// bury has a worker fail all that waits for good.
func bury(t *testing.T, q queuetest.Queue) {
	t.Helper()
	for list := queuetest.Claim(t, q, 1000); len(list) > 0; list = queuetest.Claim(t, q, 1000) {
		queuetest.Finish(t, q, queue.Permanent(errBoom), list...)
	}
}

// A change takes each task once, in batches, even where workers bury the tasks as fast as they are retried.
func TestAChangeThatMeetsWorkersEnds(t *testing.T) {
	t.Parallel()
	q, dead := makeDead(t, 1300)
	batches := 0
	changed, missed, err := inspect.Change(t.Context(), inspect.Pages(t.Context(), q, dead, inspect.Batch), dead,
		func(ctx context.Context, match queue.Filter, limit int) (int, error) {
			bury(t, q)
			if batches++; len(match.IDs) != limit || limit > inspect.Batch {
				t.Errorf("a batch of %d, with %d ids", limit, len(match.IDs))
			}
			return q.Retry(ctx, match, limit)
		})
	if changed != 1300 || missed != 0 || err != nil || batches != 3 {
		t.Errorf("changed %d, missed %d in %d batches: %v", changed, missed, batches, err)
	}
}

// An interrupt stops a change between two batches, so that its numbers are true; tasks that changed since the look are left alone.
func TestAChangeIsInterrupted(t *testing.T) {
	t.Parallel()
	q, dead := makeDead(t, 1300)
	ctx, interrupt := context.WithCancel(t.Context())
	batches := 0
	changed, missed, err := inspect.Change(ctx, inspect.Pages(ctx, interruptible{q}, dead, inspect.Batch), dead,
		func(ctx context.Context, match queue.Filter, limit int) (int, error) {
			if batches++; batches == 2 {
				interrupt()
			} else if n, err := q.Discard(ctx, queue.Filter{IDs: match.IDs[:2]}, 2); n != 2 || err != nil {
				t.Errorf("discarded %d, %v", n, err)
			}
			return q.Retry(ctx, match, limit)
		})
	if changed != 998 || missed != 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("changed %d, missed %d: %v", changed, missed, err)
	}
	queuetest.ExpectCounts(t, q, queuetest.Counts{Waiting: 998, Dead: 300})
}

// interruptible is a queue whose lists end with their context, as a database's lists do.
type interruptible struct{ *queuetest.Memory }

func (q interruptible) List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return q.Memory.List(ctx, match, limit)
}
