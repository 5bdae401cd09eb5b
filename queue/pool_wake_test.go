package queue_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// claims counts the claims of each queue, and can do something before one
// returns.
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

// asleep makes nothing happen but what is rung for.
func asleep(workers ...queue.Workers) queue.PoolOptions {
	return queue.PoolOptions{Kinds: tasks.Kinds(), Workers: workers, Poll: time.Hour, Sweep: time.Hour}
}

// Of a hundred idle workers one begins when a task comes.
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
			synctest.Wait()
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
		if n := c.take(); n != 2 {
			t.Errorf("%d claims after a fruitless ring, want two more looks", n)
		}
		counts(t, p.queue, queuetest.Counts{})
	})
}

// A worker that cannot take everything wakes a colleague, and that one another.
func TestAFullClaimWakesAColleague(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(context.Context, queue.Task) error {
			deaf(time.Second)
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 8, Batch: 1}))
		pass(time.Minute)
		var batch []queue.New
		for i := range 8 {
			batch = append(batch, tasks.NewUpload(id(i+1)))
		}
		enqueue(t, p.queue, batch...)
		synctest.Wait()
		counts(t, p.queue, queuetest.Counts{Running: 8})
	})
}

// fanOuts returns small tasks without an ordering key, the first of which is for a member.
func fanOuts(first, n int) (batch []queue.New) {
	for i := range n {
		batch = append(batch, queue.New{Kind: tasks.FanOut, Key: uint64(first + i), Queue: tasks.QueueDefault})
	}
	return batch
}

// A few small tasks go to one worker, and more, or larger ones, to as many as there is work for.
func TestAFewTasksAreOneShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind                string
		tasks, bytes, batch int
		shares              []int
	}{
		{tasks.FanOut, 1, 2, 128, []int{1}},
		{tasks.FanOut, 32, 2, 128, []int{32}},
		{tasks.FanOut, 33, 2, 128, []int{16, 17}},
		{tasks.FanOut, 100, 2, 128, []int{25, 25, 25, 25}},
		{tasks.FanOut, 500, 2, 128, []int{125, 125, 125, 125}},
		{tasks.FanOut, 4, 4096, 128, []int{4}},
		{tasks.FanOut, 4, 8192, 128, []int{2, 2}},
		{tasks.FanOut, 4, 30000, 128, []int{1, 1, 1, 1}},
		{tasks.FanOut, 5, 2, 4, []int{1, 1, 1, 2}},
		{tasks.FanOut, 3, 2, 1, []int{1, 1, 1}},
		{tasks.AddContact, 32, 2, 128, []int{8, 8, 8, 8}}, // they have ordering keys
	} {
		synctest.Test(t, func(t *testing.T) {
			shares := make(chan int, c.tasks)
			p := startPool(t, &doing{func(_ context.Context, batch []queue.Task) []error {
				shares <- len(batch)
				deaf(time.Second)
				return make([]error, len(batch))
			}}, asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 4, Batch: c.batch}))
			pass(time.Minute)
			var batch []queue.New
			for i := range c.tasks {
				payload, err := json.Marshal(strings.Repeat("x", c.bytes-2))
				if err != nil {
					t.Fatal(err)
				}
				batch = append(batch, queue.New{Kind: c.kind, Key: uint64(i + 1), Payload: payload, Queue: tasks.QueueDefault})
			}
			enqueue(t, p.queue, batch...)
			synctest.Wait()
			var got []int
			for len(shares) > 0 {
				got = append(got, <-shares)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.shares) {
				t.Errorf("%d tasks %s of %d bytes for 4 workers with batches of %d became shares of %v, want %v", c.tasks, c.kind, c.bytes, c.batch, got, c.shares)
			}
			pass(time.Minute)
		})
	}
}

// While tasks come all the time, and each share takes a while, one worker begins after the other, and no task waits until
// they are through.
func TestSharesBeginOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for takes, most := range map[time.Duration]time.Duration{60 * time.Millisecond: 12 * time.Millisecond, 12 * time.Millisecond: 3 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var start time.Time
			var shares atomic.Int32
			waits := make(chan time.Duration, 3000)
			p := startPool(t, &doing{func(_ context.Context, batch []queue.Task) []error {
				for _, task := range batch {
					if came := start.Add(time.Duration(task.Key) * time.Millisecond); task.Key > 1000 { // by then it knows how long shares take
						waits <- time.Since(came)
					}
				}
				shares.Add(1)
				deaf(takes)
				return make([]error, len(batch))
			}}, asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 6, Batch: 128}))
			pass(time.Minute)
			start = time.Now()
			for i := range 3000 {
				pass(time.Millisecond)
				enqueue(t, p.queue, fanOuts(i+1, 1)...)
			}
			pass(time.Second)
			counts(t, p.queue, queuetest.Counts{})
			for len(waits) > 0 {
				if got := <-waits; got > most {
					t.Fatalf("shares take %v: a task waited for %v until it began, want %v at most", takes, got, most)
				}
			}
			if n, want := shares.Load(), int32(4*time.Second/takes*6); n > want {
				t.Errorf("shares take %v: %d shares of 3000 tasks, want %d at most", takes, n, want)
			}
		})
	}
}

// Claims follow each other at once while most workers are idle, while more tasks wait than one of them may have, and where
// batches are too small to gather anything.
func TestNothingIsPacedWithoutNeed(t *testing.T) {
	t.Parallel()
	for batch, busy := range map[int]int{10: 1, 1: 3} {
		synctest.Test(t, func(t *testing.T) {
			begun := make(chan time.Time, 1000)
			p := startPool(t, &doing{func(_ context.Context, batch []queue.Task) []error {
				begun <- time.Now()
				deaf(100 * time.Millisecond)
				return make([]error, len(batch))
			}}, asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 4, Batch: batch}))
			pass(time.Minute)
			start := time.Now()
			enqueue(t, p.queue, fanOuts(1, 40*batch)...) // ten shares for each, one after the other
			pass(time.Minute)
			var last time.Time
			for len(begun) > 0 {
				last = <-begun
			}
			if took := last.Sub(start); took != 900*time.Millisecond {
				t.Errorf("batches of %d: the last share of a backlog began after %v, want 900ms", batch, took)
			}
			for i := range busy + 1 {
				pass(time.Millisecond)
				enqueue(t, p.queue, fanOuts(1000+i, 1)...)
				synctest.Wait()
				if len(begun) != i+1 {
					t.Fatalf("batches of %d: a task waits, though %d of 4 workers are busy", batch, i)
				}
			}
		})
	}
}

// What comes while all who could come are busy is begun when the first of them is
// free.
func TestARingWhileAllAreBusyIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan string, 10)
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			begun <- task.Kind
			deaf(time.Second)
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 1, Batch: 1}))
		pass(time.Minute)
		enqueue(t, p.queue, tasks.NewUpload(1))
		synctest.Wait()
		enqueue(t, p.queue, tasks.NewAddContact(1, 2))
		pass(500 * time.Millisecond)
		if n := len(begun); n != 1 {
			t.Fatalf("%d tasks are begun by one worker", n)
		}
		pass(time.Second)
		if n := len(begun); n != 2 {
			t.Errorf("%d tasks are begun, want the second too", n)
		}
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
		start := time.Now()
		joinPool(t, p, each(func(_ context.Context, task queue.Task) error {
			done <- id(task.Key)
			return nil
		}), asleep(queue.Workers{Queue: tasks.QueueDefault, Count: 1, Batch: 10}), c.wrap) // nobody else who would come
		synctest.Wait()
		if n := len(done); n != all || time.Since(start) > 0 {
			t.Errorf("%d of %d tasks were done", n, all)
		}
	})
}

// As above, with real threads: every task is done, though nobody polls.
func TestNoRingIsLost(t *testing.T) {
	t.Parallel()
	const producers, tasksOfEach = 8, 200
	var done, producing sync.WaitGroup
	done.Add(producers * tasksOfEach)
	p := startPool(t, each(func(context.Context, queue.Task) error {
		done.Done()
		return nil
	}), asleep(tasks.DefaultWorkers()...))
	for producer := range producers {
		producing.Go(func() {
			for i := range tasksOfEach {
				n := tasks.NewUpload(id(producer*tasksOfEach + i + 1))
				n.Queue = []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueRefill}[i%3]
				if _, err := p.queue.Enqueue(context.Background(), []queue.New{n}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	producing.Wait()
	done.Wait()
}

// A claim that fails after a notification is repeated without another one, and long
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
