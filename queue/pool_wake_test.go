package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// claims counts the claims of each queue, and calls before at the end of each.
type claims struct {
	queuetest.Queue
	mu     sync.Mutex
	of     map[string]int
	before func(queue string, list []queue.Task)
}

func (c *claims) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	list, err := c.Queue.Claim(ctx, name, n, lease)
	c.mu.Lock()
	c.of[name]++
	before := c.before
	c.mu.Unlock()
	if before != nil {
		before(name, list)
	}
	return list, err
}

// take returns the number of claims since the last time, of all queues.
func (c *claims) take() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for queue, k := range c.of {
		n += k
		c.of[queue] = 0
	}
	return n
}

func (c *claims) wrap(q queuetest.Queue) queuetest.Queue {
	c.Queue, c.of = q, map[string]int{}
	return c
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
		c.before = func(name string, list []queue.Task) {
			if len(list) == 0 && name == tasks.QueueDefault && left > 0 && p.queue != nil {
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
		faults := &faulty{}
		begun := make(chan time.Time, 1)
		p := startPool(t, each(func(context.Context, queue.Task) error {
			begun <- time.Now()
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 1, Batch: 1}), func(q queuetest.Queue) queuetest.Queue {
			faults.Queue = q
			return faults
		})
		pass(time.Minute)
		faults.claims = 2
		start := time.Now()
		enqueue(t, p.queue, tasks.NewUpload(1))
		if took := (<-begun).Sub(start); took > 2*time.Second {
			t.Errorf("begun after %v", took)
		}
	})
}

// hiding is a queue that passes over its tasks for a while, as SKIP LOCKED may.
type hiding struct {
	queuetest.Queue
	till time.Time
}

func (h *hiding) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	if time.Now().Before(h.till) {
		return nil, nil
	}
	return h.Queue.Claim(ctx, name, n, lease)
}

// A task that was locked for a moment, when somebody looked for it, is found soon
// after and not at the next poll.
func TestALookThatFindsNothingIsRepeated(t *testing.T) {
	t.Parallel()
	for _, hidden := range []time.Duration{time.Millisecond, 40 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			h := &hiding{}
			begun := make(chan time.Time, 1)
			p := startPool(t, each(func(context.Context, queue.Task) error {
				begun <- time.Now()
				return nil
			}), asleep(tasks.DefaultWorkers()...), func(q queuetest.Queue) queuetest.Queue {
				h.Queue = q
				return h
			})
			pass(time.Minute)
			start := time.Now()
			h.till = start.Add(hidden)
			enqueue(t, p.queue, tasks.NewUpload(1))
			if took := (<-begun).Sub(start); took > 110*time.Millisecond {
				t.Errorf("hidden for %v, found after %v", hidden, took)
			}
		})
	}
}
