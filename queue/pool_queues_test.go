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

// While all workers of a queue are busy, tasks of another queue begin at once: each queue has workers of its own.
func TestAFanOutStarvesNoOtherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Int32
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			if task.Kind == tasks.FanOut {
				busy.Add(1)
				deaf(10 * time.Second)
			}
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 2}, queue.Workers{Queue: tasks.QueueFanOut, Count: 2}))
		for i := range 5 {
			enqueue(t, p.queue, tasks.NewFanOut(id(i+1), 1))
		}
		pass(5 * time.Second)
		enqueue(t, p.queue, tasks.NewUpload(1))
		synctest.Wait()
		counts(t, p.queue, queuetest.Counts{Running: 2, Waiting: 3})
		if n := busy.Load(); n != 2 {
			t.Errorf("%d workers had fan-outs, want the two of that queue", n)
		}
	})
}
