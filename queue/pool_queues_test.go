package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// threeQueues have two workers each, with batches of a task.
func threeQueues() []queue.Workers {
	return []queue.Workers{
		{Queue: tasks.QueueDefault, Count: 2, Batch: 1},
		{Queue: tasks.QueueFanOut, Count: 2, Batch: 1},
		{Queue: "nightly", Count: 2, Batch: 1},
	}
}

// manyParts are parts of large fan-outs.
func manyParts(n int) (batch []queue.New) {
	for i := range n {
		batch = append(batch, tasks.NewFanOut(id(i+1), 1))
	}
	return batch
}

// While a thousand parts of fan-outs wait, tasks of further queues begin at once:
// each queue has workers of its own.
func TestAFanOutStarvesNoOtherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy, maxBusy atomic.Int32
		begun := make(chan time.Time, 2)
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			if task.Kind != tasks.FanOut {
				begun <- time.Now()
				return nil
			}
			maxBusy.Store(max(maxBusy.Load(), busy.Add(1)))
			deaf(10 * time.Second)
			busy.Add(-1)
			return nil
		}), queue.PoolOptions{Workers: threeQueues(), Poll: time.Hour, Sweep: time.Hour})
		pass(time.Second)
		enqueue(t, p.queue, manyParts(1000)...)
		pass(time.Minute + 5*time.Second)
		for _, queue := range []string{tasks.QueueDefault, "nightly"} {
			start := time.Now()
			n := tasks.NewUpload(1)
			n.Queue = queue
			enqueue(t, p.queue, n)
			if took := (<-begun).Sub(start); took > 0 {
				t.Errorf("%s: begun after %v", queue, took)
			}
		}
		if maxBusy.Load() != 2 {
			t.Errorf("%d workers had fan-outs, want the two of that queue", maxBusy.Load())
		}
	})
}

// A queue without workers is left alone.
func TestQueuesWithoutWorkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }), queue.PoolOptions{Workers: []queue.Workers{
			{Queue: tasks.QueueDefault, Count: 3, Batch: 1}, {Queue: tasks.QueueFanOut, Count: 0, Batch: 1},
		}})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1))
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
	})
}
