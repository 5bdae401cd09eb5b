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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
)

// Handler does the work of a batch of tasks of one claim, no two of which have one ordering key. Their leases hold or are
// lost together, so one task may stand for others. It returns an outcome for each
// task in order. It must be idempotent, and stop when ctx ends.
type Handler interface {
	Handle(ctx context.Context, batch []Task) []Outcome
}

// Store is what a [Pool] needs of a queue; see [Queue].
type Store interface {
	Claim(ctx context.Context, name string, n int, lease time.Duration) ([]Task, error)
	Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error)
	Finish(ctx context.Context, results []Result) (lost int, err error)
	Sweep(ctx context.Context) (Swept, error)
}

// Workers says how one queue is worked on.
type Workers struct {
	Queue string
	Count int // goroutines; none: the queue is left to other processes
	// Batch is how many tasks are claimed at once for each idle worker, at most; 0: one. A few go to one worker, though others are
	// idle: a quarter of a batch, or 32. So let it be 8 or more only where a batch costs hardly more than a task, and not if the
	// handler takes one after the other.
	Batch int
	// Lease is how long a claim of this queue lasts; 0: as the pool's.
	Lease time.Duration
}

// The defaults of [PoolOptions].
const (
	DefaultLease = 20 * time.Second
	DefaultLimit = time.Minute
	DefaultPoll  = time.Second
	DefaultSweep = 500 * time.Millisecond
	DefaultGrace = 10 * time.Second
	DefaultGap   = 5 * time.Millisecond
)

// PoolOptions say how a [Pool] works; the zero value of a field stands for its
// default. The Kinds, Registerer and Notifier of a pool over a [Queue] are those of the queue,
// unless they are given.
type PoolOptions struct {
	// Kinds are the kinds of task that the pool knows.
	Kinds Kinds
	// Registerer gets the metrics; nil: there are none.
	Registerer prometheus.Registerer
	// Notifier tells the pool that a queue has new tasks, by its name.
	Notifier *notify.Notifier
	// Log gets what operators should know: tasks that failed, leases that were lost, outages.
	// Default: [slog.Default].
	Log *slog.Logger
	// Workers are the workers of each queue, which Run refuses to have named twice.
	Workers []Workers
	// Lease is how long a claim lasts, of the queues that have none of their own
	// ([Workers].Lease). It is extended while the work goes on, so it bounds how long the
	// tasks of a process that died are held up, and not how long the work may take.
	Lease time.Duration
	// Limit is how long a worker may take for its share of a claim; then it is
	// cancelled.
	Limit time.Duration
	// Poll is how often a queue with idle workers is looked into without a
	// notification.
	Poll time.Duration
	// Gap is the distance between a claim of a queue that found less than it could take and the next one: what comes
	// meanwhile is claimed together.
	Gap time.Duration
	// Sweep is how often due tasks and lost leases are looked for.
	Sweep time.Duration
	// Grace is how long running tasks may go on after the stop.
	Grace time.Duration
	// MySQL gets the result of each call to the queue, and the errors of tasks that wait for
	// MySQL. Nil: the pool logs when it cannot be used.
	MySQL Health
	// Needs are what kinds of task need, by the names that they give: see [Kind].Needs. Errors of
	// what is missing here count as attempts.
	Needs map[string]Dependency
}

// Health is what a process knows of its database.
type Health interface {
	// Report says how a call ended that began at a time: err is nil when the server answered.
	Report(ctx context.Context, began time.Time, err error)
	// Failing reports whether the server cannot be used, as far as is known.
	Failing() bool
}

func (o PoolOptions) withDefaults(of Store) PoolOptions {
	if q, ok := of.(*Queue); ok {
		if o.Kinds == nil {
			o.Kinds = q.options.Kinds
		}
		if o.Registerer == nil {
			o.Registerer = q.options.Registerer
		}
		o.Notifier = cmp.Or(o.Notifier, q.options.Notifier)
	}
	o.Notifier = cmp.Or(o.Notifier, &notify.Notifier{})
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.MySQL == nil {
		o.MySQL = &health{log: o.Log}
	}
	o.Workers = slices.Clone(o.Workers)
	for i := range o.Workers {
		o.Workers[i].Queue = cmp.Or(o.Workers[i].Queue, DefaultQueue)
	}
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Limit = cmp.Or(o.Limit, DefaultLimit)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Gap = cmp.Or(o.Gap, DefaultGap)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	return o
}

// Pool works on queues with a fixed number of goroutines.
//
// # No task is ever stuck
//
// A task that was claimed is done, dead, scheduled for later, or free for others, where
// Lease is that of its queue,
//
//   - at most Lease + Sweep after its process died: its lease is not extended any
//     more, and the next sweep of any process frees it;
//   - at most Limit + Lease + Sweep after its worker began with its share, if its
//     handler hangs: the limit ends the handler's context, and with it the
//     extension of the lease.
//
// Both hold while the database answers, and to within the time that a sweep
// takes. A process that is stopped in the middle of a transaction holds its rows
// locked until the database ends that, after 30 s. A handler that goes on after its
// context has ended is left behind half a lease later, and the worker goes on with
// other tasks; so is one that keeps the process from stopping.
//
// # No task stops others
//
// Each queue has workers of its own, so that none waits for another queue. A task
// whose attempt failed, panicked or was lost runs after those of its share that were
// never tried, and what these did is recorded before: the second time together with others
// on their second attempt, from then on alone (see sharedAttempts). What is cancelled
// before it began is handed back and has used up no attempt. So a task that hangs, or
// kills its process, whenever it runs takes an attempt of those that run with it,
// sharedAttempts times, and is dead after its own last one; one that panics
// takes none, as its batch is run again one by one at once.
//
// So a process that is killed for another reason, with a thousand tasks, is no reason to
// run these one by one: they are claimed and run as batches again.
//
// Nothing grows with the backlog: a worker has one share, of at most
// [Workers].Batch times Count tasks, or 1024. A handler that never returns
// keeps the tasks that it was given: one task, after the shared attempts, and as often
// as it has attempts.
type Pool struct {
	queue    Store
	notifier *notify.Notifier
	handlers map[string]Handler
	kinds    Kinds
	metrics  *metrics
	options  PoolOptions
	log      *slog.Logger
}

// NewPool returns a pool that gives the tasks of each kind to its handler, by the name of the kind.
// Tasks of a kind without one, in the queues of its workers, are dead as soon as they are claimed.
func NewPool(of Store, handlers map[string]Handler, o PoolOptions) *Pool {
	o = o.withDefaults(of)
	m := newMetrics(o.Registerer)
	m.begin(o.Kinds)
	return &Pool{queue: of, notifier: o.Notifier, handlers: handlers, kinds: o.Kinds, metrics: m, options: o, log: o.Log}
}

// Queues returns the names of the queues that the pool works on, sorted.
func (p *Pool) Queues() []string {
	var names []string
	for _, w := range p.options.Workers {
		if w.Count > 0 {
			names = append(names, w.Queue)
		}
	}
	slices.Sort(names)
	return names
}

// run is one run of a pool, from its start to its stop.
type run struct {
	*Pool
	claiming context.Context // ends at the stop
	works    context.Context // of the handlers: ends when the grace period is over
	over     context.Context // ends soon after works: handlers that did not end are left behind
	lines    lines           // about calls that fail
	running  sync.WaitGroup
}

// errStopped is the cause of what is cancelled when the grace period is over.
var errStopped = errors.New("the process stops")

// handBackTime is how long handlers have after the grace period to return, so that
// their tasks can be handed back.
const handBackTime = time.Second

// Run works until ctx ends, whose end is no error. Then it claims no more, lets
// what was claimed finish within the grace period, cancels the rest, and hands back
// what was not finished, so that another process has it at once. It returns
// after its last goroutine, but for handlers that do not end with their context: it
// waits a second for them. (And, if the database does not answer, a few more for
// that.) Workers that name one queue twice are an [ErrInvalid].
func (p *Pool) Run(ctx context.Context) error {
	for i, w := range p.options.Workers {
		if slices.ContainsFunc(p.options.Workers[:i], func(o Workers) bool { return strings.EqualFold(o.Queue, w.Queue) }) {
			return fmt.Errorf("%w: workers of queue %q twice", ErrInvalid, w.Queue)
		}
	}
	works, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	over, leave := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{Pool: p, claiming: ctx, works: works, over: over}
	for _, w := range p.options.Workers {
		if w.Count <= 0 { // left to other processes
			continue
		}
		notified, unsubscribe := p.notifier.Subscribe(w.Queue)
		defer unsubscribe()
		f := newFetcher(r, w, notified)
		for range w.Count {
			r.running.Go(f.work)
		}
		r.running.Go(f.fetch)
	}
	r.running.Go(r.sweep)
	var watching sync.WaitGroup
	watching.Go(func() {
		<-ctx.Done()
		if retry.Sleep(works, p.options.Grace) == nil {
			cancel(errStopped)
		}
		if retry.Sleep(over, handBackTime) == nil {
			leave()
		}
	})
	r.running.Wait()
	cancel(nil)
	leave()
	watching.Wait()
	return nil
}
