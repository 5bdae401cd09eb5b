package endtoend_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// partSize is small, so that an upload of anybody popular is a chain of tasks.
const partSize = 100

// patience is how long a call may take on a busy machine, in tests that fail when it is given up.
const patience = time.Minute

// process is an activityd process: connections, index, queue, workers and reader of its own. Only HTTP and
// flags are missing.
type process struct {
	reader *recent.Reader
	hints  *tasks.Hints
	pool   *queue.Pool
	stop   func() // ends the workers and waits for them; set by start
}

// process returns a process that reads at once, and whose workers wait for start.
func (g *ground) process(t *testing.T, name string) *process {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})).With("process", name)
	db, notifier := openMySQL(t, g.dsn), &notify.Notifier{}
	store := contacts.NewMySQL(db)
	client := openRedis(t, g.redis)
	ix := indexOf(t, client, g.db, index.Options{Settings: g.settings, GuardLife: 5 * time.Second})
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: name})
	handlers := tasks.Handlers(ix, store, q, tasks.HandlerOptions{PartSize: partSize})
	options := poolOptions()
	options.Log, options.Away = log, health.Waits
	hints := tasks.NewHints(q, log)
	return &process{
		reader: recent.NewReader(ix, store, hints, recent.Options{Min: g.settings.Min}),
		hints:  hints,
		pool:   queue.NewPool(q, handlers, options),
	}
}

// poolOptions make batches small, so that much happens at once, and leases short, though long for the work of
// a batch.
func poolOptions() queue.PoolOptions {
	return queue.PoolOptions{
		Workers: []queue.Workers{
			{Queue: tasks.QueueDefault, Count: 2, Batch: 8},
			{Queue: tasks.QueueFanOut, Count: 2, Batch: 2},
			{Queue: tasks.QueueFanOutAgain, Count: 1, Batch: 2},
			{Queue: tasks.QueueRefill, Count: 1, Batch: 100},
			{Queue: tasks.QueueBackfill, Count: 2},
		},
		Lease: 4 * time.Second, Poll: 30 * time.Millisecond, Sweep: 200 * time.Millisecond, Grace: 5 * time.Second,
	}
}

// start lets the process work until it is stopped, at the latest by the end of t.
func (p *process) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.hints.Run(ctx) }) // it never fails
	running.Go(func() {
		if err := p.pool.Run(ctx); err != nil {
			t.Errorf("workers: %v", err)
		}
	})
	p.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(p.stop)
}

// started is a process at work.
func (g *ground) started(t *testing.T, name string) *process {
	t.Helper()
	p := g.process(t, name)
	p.start(t)
	return p
}
