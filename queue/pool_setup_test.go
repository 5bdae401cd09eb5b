package queue_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/tasks"
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

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// pool is a running pool over a queue in memory, whose uploads a handler of the
// test does. It has a worker for each queue, if not said otherwise.
type pool struct {
	queue    *queuetest.Memory
	notifier *notify.Notifier
	log      *logged
	running  *queue.Pool
	// stop ends the pool and tells how long that took.
	stop func() time.Duration
}

// wrapQueue makes methods of a queue fail.
type wrapQueue func(queuetest.Queue) queuetest.Queue

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
	p.log = &logged{}
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
	o.Log = toLog(p.log)
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

func toLog(l *logged) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
