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

// forgetful is a queue that cannot say which queues are paused.
type forgetful struct {
	queuetest.Queue
	fails atomic.Bool
}

func (f *forgetful) Paused(ctx context.Context) ([]string, error) {
	if f.fails.Load() {
		return nil, errAway
	}
	return f.Queue.Paused(ctx)
}

func (f *forgetful) wrap(q queuetest.Queue) queuetest.Queue {
	f.Queue = q
	return f
}

func setPaused(t *testing.T, q queuetest.Queue, paused bool) {
	t.Helper()
	do := q.Resume
	if paused {
		do = q.Pause
	}
	if changed, err := do(t.Context(), tasks.QueueDefault); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
}

// A paused queue stands still while the others go on, and goes on soon after its
// end without waiting for a poll.
func TestAPausedQueueStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := asleep(tasks.DefaultWorkers()...)
		o.Sweep = time.Second
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }), o)
		pass(time.Minute)
		setPaused(t, p.queue, true)
		pass(2 * time.Second)
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1), tasks.NewRefill(1))
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
		setPaused(t, p.queue, false)
		pass(time.Second)
		counts(t, p.queue, queuetest.Counts{})
	})
}

// A process that starts does not begin with what is paused, and with nothing at
// all before it knows.
func TestAPoolKnowsThePausesBeforeItBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notifier := &notify.Notifier{}
		p := pool{queue: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now), notifier: notifier}
		setPaused(t, p.queue, true)
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1))
		f := &forgetful{}
		f.fails.Store(true)
		o := asleep(tasks.DefaultWorkers()...)
		o.Sweep = time.Second
		joinPool(t, p, each(func(context.Context, queue.Task) error { return nil }), o, f.wrap)
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{Waiting: 2})
		f.fails.Store(false)
		pass(10 * time.Second)
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
	})
}

// As long as nobody can say what is paused, what was known last goes on.
func TestPausesOutliveAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{}
		o := asleep(tasks.DefaultWorkers()...)
		o.Sweep = time.Second
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }), o, f.wrap)
		pass(time.Minute)
		setPaused(t, p.queue, true)
		pass(2 * time.Second)
		f.fails.Store(true)
		setPaused(t, p.queue, false)
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1))
		delayed := tasks.NewRefill(1)
		delayed.Delay = time.Second
		enqueue(t, p.queue, delayed)
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{Waiting: 1}) // the sweeps themselves go on
		f.fails.Store(false)
		pass(10 * time.Second)
		counts(t, p.queue, queuetest.Counts{})
	})
}
