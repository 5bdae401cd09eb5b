package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// claims counts the claims of a pool, and calls after at the end of each.
type claims struct {
	n     atomic.Int32
	after func(list []queue.Task)
}

// take returns the number of claims since the last time.
func (c *claims) take() int { return int(c.n.Swap(0)) }

func (c *claims) wrap(q queuetest.Queue) queuetest.Queue {
	return &hooked{q, func(context.Context, string, int) error { return nil }, func(_ string, list []queue.Task) {
		c.n.Add(1)
		if c.after != nil {
			c.after(list)
		}
	}}
}

// asleep makes a pool that acts on notifications only.
func asleep(workers ...queue.Workers) queue.PoolOptions {
	return queue.PoolOptions{Workers: workers, Poll: time.Hour, Sweep: time.Hour}
}

// A task wakes a single worker of a hundred.
func TestARingWakesOneWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c claims
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }),
			asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 100, Batch: 10}), c.wrap)
		pass(time.Minute)
		c.take()
		for i := range 3 {
			enqueue(t, p.queue, tasks.NewUpload(id(i+1)))
			pass(10 * time.Millisecond)
			if n := c.take(); n != 2 { // with the look that finds nothing more
				t.Errorf("%d claims for one task", n)
			}
		}
		p.notifier.NotifyLocal(tasks.QueueFanOut, "nobody's")
		p.notifier.Notify()
		synctest.Wait()
		if n := c.take(); n != 0 {
			t.Errorf("%d claims for queues of others", n)
		}
		p.notifier.NotifyAllLocal()
		synctest.Wait()
		if n := c.take(); n != 1 {
			t.Errorf("%d claims for a ring for all, want one of the only queue", n)
		}
		pass(time.Minute)
		if n := c.take(); n != 1 {
			t.Errorf("%d claims after a fruitless ring, want one more look", n)
		}
		counts(t, p.queue, queuetest.Counts{})
	})
}

// A task that is committed at the last moment, after a worker looked and before
// it lies down, is found at once: here every look that finds nothing is followed
// by a new task.
func TestNothingSlipsInBetweenLookingAndSleeping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all = 50
		var c claims
		var p pool
		left := all
		c.after = func(list []queue.Task) {
			if len(list) == 0 && left > 0 && p.queue != nil {
				left--
				if _, err := p.queue.Enqueue(context.Background(), []queue.New{tasks.NewUpload(id(all - left))}); err != nil {
					t.Error(err)
				}
			}
		}
		done := make(chan id, all+1)
		notifier := &notify.Notifier{}
		p = pool{queue: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now), notifier: notifier}
		joinPool(t, p, each(func(_ context.Context, task queue.Task) error {
			done <- id(task.Key)
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 1, Batch: 10}), c.wrap) // nobody else who would come
		pass(all * 6 * time.Millisecond)
		if n := len(done); n != all {
			t.Errorf("%d of %d tasks were done", n, all)
		}
	})
}

// A claim that fails after a notification is repeated without another notification, and long
// before the next poll.
func TestANotificationOutlivesAFailingClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Int32
		begun := make(chan time.Time, 1)
		p := startPool(t, each(func(context.Context, queue.Task) error {
			begun <- time.Now()
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 1, Batch: 1}), failing("claim", &fails))
		pass(time.Minute)
		fails.Store(2)
		start := time.Now()
		enqueue(t, p.queue, tasks.NewUpload(1))
		if took := (<-begun).Sub(start); took > 2*time.Second {
			t.Errorf("begun after %v", took)
		}
	})
}

// A task that was locked for a moment, when somebody looked for it, is found soon
// after and not at the next poll.
func TestALookThatFindsNothingIsRepeated(t *testing.T) {
	t.Parallel()
	for _, hidden := range []time.Duration{time.Millisecond, 40 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var till time.Time // until then the queue passes over its tasks, as SKIP LOCKED may
			begun := make(chan time.Time, 1)
			p := startPool(t, each(func(context.Context, queue.Task) error {
				begun <- time.Now()
				return nil
			}), asleep(tasks.DefaultWorkers()...), on("claim", func() error {
				if time.Now().Before(till) {
					return errNothing
				}
				return nil
			}))
			pass(time.Minute)
			start := time.Now()
			till = start.Add(hidden)
			enqueue(t, p.queue, tasks.NewUpload(1))
			if took := (<-begun).Sub(start); took > 110*time.Millisecond {
				t.Errorf("hidden for %v, found after %v", hidden, took)
			}
		})
	}
}
