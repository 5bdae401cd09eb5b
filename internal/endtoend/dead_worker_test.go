package endtoend_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// TestAnotherTakesOver: a process dies with tasks in its hands, at different
// points of its work. It finishes nothing and hands nothing back. Another has
// them when the leases ran out.
func TestAnotherTakesOver(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faults{
		"before the work":  {handlers: idleHandlers},
		"before the write": {index: func(ix tasks.Index) tasks.Index { return readOnlyIndex{ix} }},
		"after the work":   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := seedFor(t)
			tn := newTown(t, newGround(t, needFor(seed)), seed, 150)
			tn.warm(t, tn.viewers())
			tn.live(t, 20)
			tn.letDie(t, f)
			if held := tn.count(t).Running; held == 0 {
				t.Fatal("the dead process holds no task")
			}
			heir := tn.started(t, "heir")
			tn.awaitIdle(t)
			tn.check(t, heir.reader)
		})
	}
}

// letDie runs a process until it would finish its first batch.
func (tn *town) letDie(t *testing.T, f faults) {
	t.Helper()
	mortal := &mortalQueue{died: make(chan struct{})}
	f.queue = func(q queuetest.Queue) queuetest.Queue {
		mortal.Queue = q
		return mortal
	}
	p := tn.process(t, "mortal", f)
	p.start(t)
	<-mortal.died
	p.stop()
}

// mortalQueue is the queue as seen by a process that dies before it records its
// first result: it records none, and claims no more.
type mortalQueue struct {
	queuetest.Queue
	once sync.Once
	died chan struct{}
}

func (q *mortalQueue) Finish(_ context.Context, _ []queue.Result) (lost int, err error) {
	q.once.Do(func() { close(q.died) })
	return 0, nil
}

func (q *mortalQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]queue.Task, error) {
	select {
	case <-q.died:
		return nil, nil
	default:
		return q.Queue.Claim(ctx, queue, n, lease)
	}
}

// Sweep does nothing: only the heir frees what the dead one holds.
func (q *mortalQueue) Sweep(context.Context) (queue.Swept, error) { return queue.Swept{}, nil }

// idleHandlers do nothing.
func idleHandlers(handlers map[string]queue.Handler) map[string]queue.Handler {
	idle := map[string]queue.Handler{}
	for kind := range handlers {
		idle[kind] = idleHandler{}
	}
	return idle
}

type idleHandler struct{}

func (idleHandler) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	return make([]queue.Outcome, len(batch))
}

// readOnlyIndex is the index as seen by a process that dies before it writes: an
// update has begun, the next part of a fan-out is enqueued, and that is all.
type readOnlyIndex struct{ tasks.Index }

var errDied = errors.New("the process died")

func (readOnlyIndex) Add(_ context.Context, additions []index.Addition) ([]member.ID, map[member.ID]error) {
	failed := make(map[member.ID]error)
	for _, a := range additions {
		failed[a.Member] = errDied
	}
	return nil, failed
}

func (readOnlyIndex) Apply(_ context.Context, changes []index.Change) []index.Result {
	results := make([]index.Result, len(changes))
	for i := range results {
		results[i].Err = errDied
	}
	return results
}
