package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// Handler does the work of a batch of tasks. Tasks of a batch are of one claim, and no two have the same ordering key. Their
// leases hold or are lost together, so a task may do the work of another. Handle returns an outcome for each task, in order. It must
// be idempotent and safe for concurrent use, and return when ctx ends.
type Handler interface {
	Handle(ctx context.Context, batch []Task) []Outcome
}

// Store is the part of a [Queue] that a [Pool] uses.
type Store interface {
	Options() Options
	Claim(ctx context.Context, name string, n int, lease time.Duration) ([]Task, error)
	Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error)
	Finish(ctx context.Context, results []Result) (lost int, err error)
	Sweep(ctx context.Context) (Swept, error)
}

// Workers are the goroutines that work on a queue.
type Workers struct {
	Queue string // "": [DefaultQueue]
	Count int    // goroutines; 0: the queue is left to other processes
	// Batch is how many tasks a worker claims at most; 0: 1. While more workers are idle it claims a quarter.
	Batch int
	// Lease is how long a claim of this queue lasts; 0: [PoolOptions].Lease.
	Lease time.Duration
}

// The defaults of [PoolOptions] that programs have as options of their own.
const (
	DefaultLease = 20 * time.Second
	DefaultPoll  = time.Second
	DefaultGrace = 10 * time.Second
)

// PoolOptions are the options of a [Pool] beside [Options]; the zero value of a field stands for its default.
type PoolOptions struct {
	// Log gets tasks that failed, leases that were lost, and calls to the database that failed. Default: [slog.Default].
	Log *slog.Logger
	// Workers are the workers of each queue. Run refuses to have a queue twice.
	Workers []Workers
	// Lease is how long a claim lasts. The pool extends it while the work goes on, so it bounds how long the tasks of a dead process
	// are held up, and not the work. Default: [DefaultLease].
	Lease time.Duration
	// Limit is how long a worker may take for a claim. Then the context of the handler ends. Default: a minute.
	Limit time.Duration
	// Poll is how often a pool with idle workers looks for tasks without a notification. Default: [DefaultPoll].
	Poll time.Duration
	// Gap is the least time between a claim that was not full and the next claim of the queue. Tasks that come in the gap are
	// claimed together. Default: 5 ms.
	Gap time.Duration
	// Sweep is the time between calls of [Queue.Sweep]. Default: half a second.
	Sweep time.Duration
	// Grace is how long running tasks may go on after the stop. Default: [DefaultGrace].
	Grace time.Duration
	// Report gets the end of each call to the database that began at a time: err is nil when the server answered. Nil: the pool logs
	// errors itself, each message once a minute.
	Report func(ctx context.Context, began time.Time, err error)
	// Away reports whether an error of a handler says that a service is away, beside [ErrUnavailable]: then the task is postponed,
	// and no attempt counts.
	Away func(err error) bool
}

func (o PoolOptions) withDefaults() PoolOptions {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Lease, o.Limit, o.Grace = cmp.Or(o.Lease, DefaultLease), cmp.Or(o.Limit, time.Minute), cmp.Or(o.Grace, DefaultGrace)
	o.Poll, o.Gap, o.Sweep = cmp.Or(o.Poll, DefaultPoll), cmp.Or(o.Gap, 5*time.Millisecond), cmp.Or(o.Sweep, 500*time.Millisecond)
	o.Workers = slices.Clone(o.Workers)
	for i := range o.Workers {
		w := &o.Workers[i]
		w.Queue, w.Batch, w.Lease = cmp.Or(w.Queue, DefaultQueue), max(1, w.Batch), cmp.Or(w.Lease, o.Lease)
	}
	return o
}

// Pool works on queues with a fixed number of goroutines.
//
// A task that was claimed is done, dead, scheduled, or free again at most Lease + Sweep after its process died, and at most
// Limit + Lease + Sweep after a handler began that hangs; Lease is that of its queue. Both hold while the database answers. A process
// that was stopped within a transaction holds its rows until the server ends its connection, after 30 seconds. A handler that goes
// on after its context has ended is left behind half a lease later, and the worker goes on.
//
// Each queue has workers of its own, so no queue waits for another. The first attempts of a task, two by default, are shared: the task
// may run in a batch with others. After that it runs alone, when the results of the rest of its claim are recorded: a task that
// hangs, or kills its process, costs the rest two attempts and is dead after its own last attempt. A panic costs an attempt of the
// task alone: the pool runs its batch again, task by task. Tasks that were cancelled before they began are released, and
// use up no attempt.
type Pool struct {
	queue    Store
	of       Options
	handlers map[string]Handler
	options  PoolOptions
	metrics  *metrics
	log      *slog.Logger
}

// NewPool returns a pool that gives the tasks of each kind to its handler, by the name of the kind. Tasks of a kind without a handler
// are dead as soon as the pool claims them.
func NewPool(q Store, handlers map[string]Handler, o PoolOptions) *Pool {
	o = o.withDefaults()
	return &Pool{queue: q, of: q.Options(), handlers: handlers, options: o, metrics: newMetrics(q.Options()), log: o.Log}
}

// run is a run of a pool, from its start to its stop.
type run struct {
	*Pool
	claiming context.Context // ends at the stop
	works    context.Context // of the handlers: ends when the grace period is over
	over     context.Context // ends releaseTime after works: handlers that did not return are left behind
	running  sync.WaitGroup

	mu     sync.Mutex
	logged map[string]time.Time // by message; see report
}

// errStopped is the cause when the end of the grace period cancels work.
var errStopped = errors.New("the process stops")

// releaseTime is how long handlers get after the grace period to return, so that their tasks can be released.
const releaseTime = time.Second

// Run works until ctx ends, whose end is no error. Then it claims no more, lets running tasks finish within the grace period, cancels
// the rest, and releases their tasks, so that another process can claim them at once. It returns after its last goroutine; it waits a
// second for handlers that do not end with their context, and some seconds more if the database does not answer. Workers
// that name a queue twice are an [ErrInvalid].
func (p *Pool) Run(ctx context.Context) error {
	for i, w := range p.options.Workers {
		if slices.ContainsFunc(p.options.Workers[:i], func(o Workers) bool { return strings.EqualFold(o.Queue, w.Queue) }) {
			return fmt.Errorf("%w: workers of queue %q twice", ErrInvalid, w.Queue)
		}
	}
	works, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	over, leave := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{Pool: p, claiming: ctx, works: works, over: over, logged: make(map[string]time.Time)}
	for _, w := range p.options.Workers {
		if w.Count <= 0 {
			continue
		}
		notified, unsubscribe := p.of.Notifier.Subscribe(w.Queue)
		defer unsubscribe()
		c := &claimer{run: r, Workers: w, notified: notified, turn: make(chan struct{}, 1)}
		c.turn <- struct{}{}
		for range w.Count {
			r.running.Go(c.work)
		}
	}
	r.running.Go(r.sweep)
	var watching sync.WaitGroup
	watching.Go(func() {
		<-ctx.Done()
		if retry.Sleep(works, p.options.Grace) == nil {
			cancel(errStopped)
		}
		if retry.Sleep(over, releaseTime) == nil {
			leave()
		}
	})
	r.running.Wait()
	cancel(nil)
	leave()
	watching.Wait()
	return nil
}

// sweep sweeps until the stop.
func (r *run) sweep() {
	ctx := r.claiming
	for ctx.Err() == nil {
		began := time.Now()
		swept, err := r.queue.Sweep(ctx)
		r.report(ctx, began, err, "sweep failed")
		if swept.TookOver > 0 {
			r.log.WarnContext(ctx, "leases ran out", "count", swept.TookOver, "then", "their tasks are free again, or dead after their last attempt")
			r.metrics.takeovers.Add(float64(swept.TookOver))
		}
		switch {
		case err != nil:
			_ = retry.Sleep(ctx, retry.Jitter(8*r.options.Sweep))
		case !swept.More:
			_ = retry.Sleep(ctx, retry.Jitter(r.options.Sweep))
		}
	}
}

// isAway reports whether an error says that the database does not answer, or not in time.
func isAway(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// report notes the end of a call to the database that began at a time. It logs an error, as message and at most once a minute, unless
// Report hears of it. After the end of ctx it does nothing.
func (r *run) report(ctx context.Context, began time.Time, err error, message string, about ...any) {
	if ctx.Err() != nil {
		return
	}
	if r.options.Report != nil && (err == nil || isAway(err)) {
		r.options.Report(ctx, began, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && time.Since(r.logged[message]) >= time.Minute {
		r.logged[message] = time.Now()
		r.log.ErrorContext(ctx, message, append(about, "error", err)...)
	}
}
