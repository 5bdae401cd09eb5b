package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Handler does the work of a batch of tasks of one claim: their leases hold or are
// lost together, so one of them may stand for others. It returns an error for each task
// in order, nil where the task is done; [Permanent] and [Later] say what a plain
// error does not. It must be idempotent, and stop when ctx ends.
type Handler interface {
	Handle(ctx context.Context, batch []Task) []error
}

// Workers says how one queue is worked on.
type Workers struct {
	Queue string
	Count int // goroutines that are at home there; none: the queue is left to other processes
	Batch int // most tasks claimed at once by each who works there
}

// The defaults of [PoolOptions].
const (
	DefaultLease = 20 * time.Second
	DefaultLimit = time.Minute
	DefaultPoll  = time.Second
	DefaultSweep = 500 * time.Millisecond
	DefaultGrace = 10 * time.Second
)

// PoolOptions say how a [Pool] works; the zero value of a field stands for its
// default.
type PoolOptions struct {
	// Workers are the workers of each queue; default: see [DefaultWorkers]. The
	// counts are weights: the first worker of a queue works there alone, the
	// others help elsewhere when there is nothing to do at home, in the order
	// given here.
	Workers []Workers
	// Lease is how long a claim lasts. It is extended while the work goes on, so
	// it bounds how long the tasks of a process that died are held up, and not
	// how long the work may take.
	Lease time.Duration
	// Limit is how long one batch may take from its claim; then it is cancelled.
	Limit time.Duration
	// Poll is how often an idle worker looks for tasks that nobody rang for.
	Poll time.Duration
	// Sweep is how often due tasks, lost leases and paused queues are looked for.
	Sweep time.Duration
	// Grace is how long running tasks may go on after the stop.
	Grace time.Duration
	// Observer is told what happens; nil: nobody.
	Observer Observer
	// MySQL is told how calls to the queue ended, and Redis when tasks wait for it; that
	// it is back, the caller has to say. Nil: one of the pool's own.
	MySQL, Redis *Outage
}

func (o PoolOptions) withDefaults() PoolOptions {
	if len(o.Workers) == 0 {
		o.Workers = DefaultWorkers()
	}
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Limit = cmp.Or(o.Limit, DefaultLimit)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Observer = observerOr(o.Observer)
	return o
}

// DefaultBatch is how many small tasks are claimed at once.
const DefaultBatch = 256

// DefaultWorkers is a sensible choice for one small machine.
func DefaultWorkers() []Workers {
	return []Workers{
		{Queue: QueueDefault, Count: 2, Batch: DefaultBatch},
		{Queue: QueueFanOut, Count: 2, Batch: 4},
		{Queue: QueueRefill, Count: 1, Batch: 128},
	}
}

// Pool works on queues with a fixed number of goroutines.
//
// # No task is ever stuck
//
// A task that was claimed is done, dead, scheduled for later, or free for others
//
//   - at most Lease + Sweep after its process died: nobody extends its lease any
//     more, and the next sweep of any process frees it;
//   - at most Limit + Lease + Sweep after its claim, if its handler hangs: the
//     limit ends the handler's context, and with it the extension of the lease.
//
// Both hold while the database answers, and to within the time that a sweep
// takes. Whoever is stopped in the middle of a transaction holds its rows locked
// until the database ends that: see mysql.Open, 30 s. A handler that goes on after its context has ended is left behind half a
// lease later, and the worker goes on with other tasks; so is one that keeps the
// process from stopping.
//
// # No task stops others
//
// A task whose attempt failed, panicked or was lost runs alone from then on, after
// the other tasks of its batch. What is cancelled before it began is handed back
// and has used up no attempt. So a task that hangs or panics whenever it runs
// holds up others for one attempt, and is dead after its own last one.
//
// Nothing grows with the backlog: a worker holds one batch, at most Workers.Batch
// tasks, and whatever is kept of a task besides (its lane, its lease) is
// forgotten with its batch. A handler that never returns keeps the tasks that it
// was given: one task, after the first attempt, and as often as it has attempts.
type Pool struct {
	queue    Queue
	bell     *Bell
	handlers map[Type]Handler
	options  PoolOptions
	log      *slog.Logger
}

// NewPool returns a pool that gives each type of task to its handler. Its idle
// workers wait for bell.
func NewPool(queue Queue, bell *Bell, handlers map[Type]Handler, log *slog.Logger, o PoolOptions) *Pool {
	if o.MySQL == nil {
		o.MySQL = NewOutage(log, "MySQL")
	}
	if o.Redis == nil {
		o.Redis = NewOutage(log, "Redis")
	}
	return &Pool{queue: queue, bell: bell, handlers: handlers, options: o.withDefaults(), log: log}
}

// Queues returns the names of the queues that the pool works on, sorted.
func (p *Pool) Queues() []string {
	var names []string
	for _, h := range homes(p.options.Workers) {
		names = append(names, h.queues[0].Queue)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// shift is one run of a pool, from its start to its stop.
type shift struct {
	*Pool
	claiming context.Context // ends at the stop
	work     context.Context // what handlers run under: it ends when the grace is over
	over     context.Context // ends soon after work: who works on is left behind
	queues   []string
	turns    map[string]chan struct{} // whose turn it is to claim from a queue
	lanes    *lanes
	pauses   pauses

	toldMu sync.Mutex
	told   map[string]time.Time // when a message about failed calls was last logged
}

// errStopped is the cause of what is cancelled when the grace period is over.
var errStopped = errors.New("the process stops")

// goodbye is how long handlers have after the grace period to hear that it is
// over, so that their tasks can be handed back.
const goodbye = time.Second

// Run works until ctx ends, whose end is no error. Then it claims no more, lets
// what runs finish within the grace period, cancels the rest, and hands back
// what was not finished, so that another process has it at once. It returns
// after its last goroutine, but for handlers that are deaf to their context: it
// waits a second for them. (And, if the database does not answer, a few more for
// that.)
func (p *Pool) Run(ctx context.Context) error {
	work, endWork := context.WithCancelCause(context.WithoutCancel(ctx))
	over, endAll := context.WithCancel(context.WithoutCancel(ctx))
	s := &shift{
		Pool: p, claiming: ctx, work: work, over: over,
		queues: p.Queues(), turns: make(map[string]chan struct{}), lanes: newLanes(),
		told: make(map[string]time.Time),
	}
	for _, queue := range s.queues {
		s.turns[queue] = make(chan struct{}, 1)
	}
	forget := p.bell.tend(s.queues)
	defer forget()
	var running, watching sync.WaitGroup
	watching.Go(func() { s.endGrace(endWork, endAll) })
	running.Go(s.sweep)
	for _, h := range homes(p.options.Workers) {
		running.Go(func() { s.worker(h) }) //nolint:contextcheck // a shift has a context for each stage of its end
	}
	running.Wait()
	endWork(nil)
	endAll()
	watching.Wait()
	return nil
}

// endGrace ends work when the grace period after the stop is over, and a little
// later everything.
func (s *shift) endGrace(endWork context.CancelCauseFunc, endAll context.CancelFunc) {
	<-s.claiming.Done()
	if sleep(s.work, s.options.Grace) == nil {
		endWork(errStopped)
	}
	if sleep(s.over, goodbye) == nil {
		endAll()
	}
}
