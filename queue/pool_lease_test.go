package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// sleepFor is work that takes d, in the time of the bubble, and stops with ctx.
func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deaf is work that takes d whatever happens to its context.
func deaf(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

// Work may take many times as long as its lease.
func TestTheHeartbeatKeepsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		work := each(func(ctx context.Context, _ queue.Task) error {
			runs.Add(1)
			return sleepFor(ctx, 50*time.Second)
		})
		o := queue.PoolOptions{Lease: 4 * time.Second}
		p := startPool(t, work, o)
		other := joinPool(t, p, work, o)
		enqueue(t, p.queue, tasks.NewUpload(1))
		pass(49 * time.Second)
		counts(t, p.queue, queuetest.Counts{Running: 1})
		pass(2 * time.Second)
		counts(t, p.queue, queuetest.Counts{})
		if log := p.log.String() + other.log.String(); runs.Load() != 1 || log != "" {
			t.Errorf("%d runs, log %s", runs.Load(), log)
		}
	})
}

// A process that was paused past its lease finds out at its next heartbeat, and
// leaves the work to its new holder. Its results are refused.
func TestALostLeaseCancelsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		start := time.Now()
		paused := func() bool { return time.Since(start) < 15*time.Second }
		expect := counting(t, "activityd_lease_takeovers_total", "activityd_leases_lost_total")
		p := startPool(t, each(func(ctx context.Context, task queue.Task) error {
			if task.Attempts > 1 {
				return sleepFor(ctx, 20*time.Second)
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}), queue.PoolOptions{
			Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 2, Batch: 1}}, Lease: 10 * time.Second,
		}, on("extend", func() error {
			if paused() {
				return errNothing
			}
			return nil
		}))
		enqueue(t, p.queue, tasks.NewUpload(1))
		pass(16 * time.Second)
		if cause == nil || !strings.Contains(cause.Error(), "lease was lost") {
			t.Errorf("cancelled for %v", cause)
		}
		counts(t, p.queue, queuetest.Counts{Running: 1}) // by the second worker, undisturbed
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{})
		expect(metricstest.Samples{"activityd_lease_takeovers_total": 1, "activityd_leases_lost_total": 1})
		if log := p.log.String(); !strings.Contains(log, "leases ran out") || !strings.Contains(log, "have another worker") {
			t.Errorf("log %s", log)
		}
	})
}

// When leases cannot be extended, work goes on as long as they last for sure. A
// heartbeat that fails now and then does no harm.
func TestWorkEndsWithALeaseThatCannotBeExtended(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails func(beat int) bool
		took  time.Duration
	}{
		"never extended":    {func(int) bool { return true }, 8 * time.Second},
		"extended for once": {func(beat int) bool { return beat != 3 }, 14 * time.Second}, // at 6 s
		"extended at times": {func(beat int) bool { return beat%3 > 0 }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				beat := 0
				p := startPool(t, each(func(ctx context.Context, task queue.Task) error {
					if took > 0 {
						return nil
					}
					if task.Attempts > 1 {
						t.Error("an attempt was counted")
					}
					start := time.Now()
					err := sleepFor(ctx, 30*time.Second)
					took = time.Since(start)
					return err
				}), queue.PoolOptions{
					Sweep:   time.Hour, // the lease of the queue counts
					Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1, Lease: 8 * time.Second}},
				}, on("extend", func() error {
					if beat++; test.fails(beat) {
						return errAway
					}
					return nil
				}))
				enqueue(t, p.queue, tasks.NewUpload(1))
				pass(time.Minute)
				if took != test.took {
					t.Errorf("the work went on for %v, want %v", took, test.took)
				}
				counts(t, p.queue, queuetest.Counts{})
			})
		})
	}
}

// A handler that goes on when its lease is lost is left behind with a warning: the machine may be
// slow. When it puts its task off for a time, that counts also then.
func TestALostLeaseIsNoFaultOfTheHandler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		goesOn, notBefore time.Duration
		left              int
	}{
		"it is late":           {5 * time.Second, 8 * time.Second, 1},
		"it puts the task off": {time.Second, 39 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var again atomic.Int64 // when it was called last, perhaps beside a call that was left behind
				p := startPool(t, each(func(ctx context.Context, _ queue.Task) error {
					if since := time.Since(start); since > 0 {
						again.Store(int64(since))
						return nil
					}
					<-ctx.Done()
					deaf(test.goesOn)
					return queue.Later(30*time.Second, errors.New("not now"))
				}), queue.PoolOptions{Lease: 8 * time.Second, Sweep: time.Hour}, on("extend", func() error { return errAway }))
				enqueue(t, p.queue, tasks.NewUpload(1))
				pass(2 * time.Hour)
				if log := p.log.String(); strings.Count(log, "handler does not end") != test.left || strings.Contains(log, "level=ERROR") {
					t.Errorf("log %s", log)
				}
				if again := time.Duration(again.Load()); again < test.notBefore {
					t.Errorf("again after %v, want no sooner than %v", again, test.notBefore)
				}
			})
		})
	}
}

// A batch that takes too long is cancelled, and that is the tasks' fault.
func TestWorkEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		var attempts []int
		p := startPool(t, each(func(ctx context.Context, task queue.Task) error {
			if attempts = append(attempts, task.Attempts); task.Attempts > 1 {
				return nil
			}
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
			return ctx.Err()
		}), queue.PoolOptions{Lease: 10 * time.Second, Limit: 90 * time.Second})
		enqueue(t, p.queue, tasks.NewUpload(1))
		pass(3 * time.Minute)
		if took != 90*time.Second || len(attempts) != 2 {
			t.Errorf("cancelled after %v, attempts %v", took, attempts)
		}
		if log := p.log.String(); !strings.Contains(log, "longer than its limit of 1m30s") || strings.Contains(log, "ran out") {
			t.Errorf("log %s", log)
		}
		counts(t, p.queue, queuetest.Counts{})
	})
}

// The bound that the documentation of Pool states, for a process that dies and
// for a handler that hangs. The time between is when the claim is rather than
// when the sweep is.
func TestNothingIsStuck(t *testing.T) {
	t.Parallel()
	const limit, lease, sweep = 30 * time.Second, 10 * time.Second, 2 * time.Second
	o := queue.PoolOptions{Limit: limit, Lease: lease, Sweep: sweep, Poll: time.Hour}
	freed := func(t *testing.T, p pool) (after func() time.Duration) {
		t.Helper()
		start := time.Now()
		again := make(chan time.Time, 1)
		joinPool(t, p, each(func(context.Context, queue.Task) error {
			again <- time.Now()
			return nil
		}), o)
		return func() time.Duration { return (<-again).Sub(start) }
	}
	for _, between := range []time.Duration{0, time.Second, 1999 * time.Millisecond} {
		t.Run("died", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				notifier := &notify.Notifier{}
				p := pool{queue: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now), notifier: notifier}
				enqueue(t, p.queue, tasks.NewUpload(1))
				claimFor(t, p.queue, tasks.QueueDefault, 1, lease)
				pass(between)
				if took := between + freed(t, p)(); took < lease || took > lease+sweep {
					t.Errorf("begun again after %v, want within %v", took, lease+sweep)
				}
			})
		})
		t.Run("hangs", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := startPool(t, each(func(context.Context, queue.Task) error {
					deaf(time.Hour)
					return nil
				}), o, claimingOnce())
				enqueue(t, p.queue, tasks.NewUpload(1))
				pass(between)
				if took := between + freed(t, p)(); took < limit || took > limit+lease+sweep {
					t.Errorf("begun again after %v, want within %v", took, limit+lease+sweep)
				}
				pass(2 * time.Hour) // the handler that was left behind ends
			})
		})
	}
}

// claimingOnce lets a pool claim a single time, so that another process gets the task the second time.
func claimingOnce() wrapQueue {
	done := false
	return func(q queuetest.Queue) queuetest.Queue {
		return &hooked{q, func(_ context.Context, call string, _ int) error {
			if call == "claim" && done {
				return errNothing
			}
			return nil
		}, func(_ string, list []queue.Task) { done = done || len(list) > 0 }}
	}
}

// A task that never ends costs the rest two attempts, and dies of its own.
func TestATaskThatHangsHarmsOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poisoned = 2
		var mu sync.Mutex // a handler that was left behind knows nothing of the next
		runs, done := map[id][]int{}, map[id]time.Time{}
		start, end := time.Now(), make(chan struct{})
		p := startPool(t, &doing{func(_ context.Context, batch []queue.Task) []error {
			mu.Lock()
			for _, task := range batch {
				runs[id(task.Key)] = append(runs[id(task.Key)], task.Attempts)
			}
			mu.Unlock()
			if slices.ContainsFunc(batch, func(task queue.Task) bool { return task.Key == poisoned }) {
				<-end
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, task := range batch {
				done[id(task.Key)] = time.Now()
			}
			return make([]error, len(batch))
		}}, queue.PoolOptions{})
		defer close(end)
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(poisoned), tasks.NewUpload(3))
		pass(2 * time.Hour)
		counts(t, p.queue, queuetest.Counts{Dead: 1})
		if len(runs[poisoned]) != 25 {
			t.Errorf("the poisoned task ran at the attempts %v", runs[poisoned])
		}
		for _, other := range []id{1, 3} {
			if took := done[other].Sub(start); len(runs[other]) != 3 || took > 4*time.Minute {
				t.Errorf("task %d ran at the attempts %v and was done after %v", other, runs[other], took)
			}
		}
		if log := p.log.String(); strings.Count(log, "handler does not end") != 25 || !strings.Contains(log, "longer than its limit") {
			t.Errorf("log %s", log)
		}
	})
}

// A task that waits while another hangs has not used up an attempt.
func TestWhatDidNotBeginIsHandedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		second := make(chan int, 25)
		fail := errors.New("once")
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			switch {
			case task.Attempts <= 2:
				return fail // so that each runs alone from then on
			case task.Key == 1 && task.Attempts == 3:
				deaf(time.Hour)
			case task.Key == 2:
				second <- task.Attempts
			}
			return nil
		}), queue.PoolOptions{Sweep: 10 * time.Second})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
		pass(10 * time.Minute)
		counts(t, p.queue, queuetest.Counts{})
		if n, attempt := len(second), <-second; n != 1 || attempt != 3 {
			t.Errorf("the second task ran again %d times, first at attempt %d", n, attempt)
		}
		pass(2 * time.Hour)
	})
}
