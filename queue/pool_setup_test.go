package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// doing is a handler made of a function.
type doing struct {
	do func(ctx context.Context, batch []queue.Task) []error
}

func (d *doing) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	errs := d.do(ctx, batch)
	all := make([]queue.Outcome, len(errs))
	for i, err := range errs {
		all[i].Err = err
	}
	return all
}

// each makes a handler of work on a task.
func each(do func(ctx context.Context, t queue.Task) error) *doing {
	return &doing{func(ctx context.Context, batch []queue.Task) []error {
		errs := make([]error, len(batch))
		for i, t := range batch {
			errs[i] = do(ctx, t)
		}
		return errs
	}}
}

// pool is a running pool over a queue in memory, whose uploads a handler of the
// test does. It has a worker for each queue, if not said otherwise.
type pool struct {
	queue    *queuetest.Memory
	notifier *notify.Notifier
	log      *logtest.Log
	running  *queue.Pool
	// stop ends the pool and tells how long that took.
	stop func() time.Duration
}

// hooked is a queue whose calls a test decides on: an error fails a call, and errNothing makes it do nothing. n is how many tasks a claim
// is for.
type hooked struct {
	queuetest.Queue
	before  func(ctx context.Context, call string, n int) error
	claimed func(name string, list []queue.Task)
}

var errNothing = errors.New("nothing is done")

// call makes a call of a hooked queue.
func call[T any](ctx context.Context, h *hooked, name string, n int, do func() (T, error)) (result T, err error) {
	if err := h.before(ctx, name, n); errors.Is(err, errNothing) {
		return result, nil
	} else if err != nil {
		return result, err
	}
	return do()
}

func (h *hooked) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	list, err := call(ctx, h, "claim", n, func() ([]queue.Task, error) { return h.Queue.Claim(ctx, name, n, lease) })
	if h.claimed != nil {
		h.claimed(name, list)
	}
	return list, err
}

func (h *hooked) Extend(ctx context.Context, held []queue.Task, lease time.Duration) (int, error) {
	return call(ctx, h, "extend", 0, func() (int, error) { return h.Queue.Extend(ctx, held, lease) })
}

func (h *hooked) Finish(ctx context.Context, results []queue.Result) (int, error) {
	return call(ctx, h, "finish", 0, func() (int, error) { return h.Queue.Finish(ctx, results) })
}

func (h *hooked) Sweep(ctx context.Context) (queue.Swept, error) {
	return call(ctx, h, "sweep", 0, func() (queue.Swept, error) { return h.Queue.Sweep(ctx) })
}

// wrapQueue is something between a pool and its queue.
type wrapQueue func(queuetest.Queue) queuetest.Queue

func hook(before func(ctx context.Context, call string, n int) error) wrapQueue {
	return func(q queuetest.Queue) queuetest.Queue { return &hooked{q, before, nil} }
}

// on makes a hook for calls of that name.
func on(name string, before func() error) wrapQueue {
	return hook(func(_ context.Context, call string, _ int) error {
		if call != name {
			return nil
		}
		return before()
	})
}

var errAway = errors.New("the database is away")

// failing makes so many of the next calls of that name fail.
func failing(name string, n *atomic.Int32) wrapQueue {
	return on(name, func() error {
		if n.Add(-1) >= 0 {
			return errAway
		}
		return nil
	})
}

// startPool starts a pool; it is stopped when t ends, if it was not before.
func startPool(t *testing.T, h queue.Handler, o queue.PoolOptions, wraps ...wrapQueue) pool {
	t.Helper()
	notifier := &notify.Notifier{}
	return joinPool(t, pool{queue: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Registerer: prometheus.DefaultRegisterer}, time.Now), notifier: notifier}, h, o, wraps...)
}

// joinPool starts another process, so to speak, over the queue and the notifier of a
// pool.
func joinPool(t *testing.T, p pool, h queue.Handler, o queue.PoolOptions, wraps ...wrapQueue) pool {
	t.Helper()
	p.log = &logtest.Log{}
	var q queuetest.Queue = p.queue
	for _, wrap := range wraps {
		q = wrap(q)
	}
	if o.Workers == nil {
		o.Workers = []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 10}}
	}
	handlers := map[string]queue.Handler{
		tasks.Upload: h, tasks.FanOut: h, tasks.Refill: h, tasks.AddContact: h, tasks.RemoveContact: h,
	}
	o.Log = p.log.Logger()
	p.running = queue.NewPool(q, handlers, o)
	p.stop = run(t, p.running)
	return p
}

// run runs a pool until it is stopped, or t ends.
func run(t *testing.T, running *queue.Pool) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := running.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() time.Duration {
		start := time.Now()
		cancel()
		<-ended
		return time.Since(start)
	}
	t.Cleanup(func() { stop() })
	return stop
}
