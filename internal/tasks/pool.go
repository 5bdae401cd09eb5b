package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
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
	Count int // goroutines
	Batch int // most tasks claimed at once by each of them
}

// The defaults of [PoolOptions].
const (
	DefaultLease = time.Minute
	DefaultPoll  = 250 * time.Millisecond
	DefaultSweep = 500 * time.Millisecond
	DefaultGrace = 10 * time.Second
)

// PoolOptions say how a [Pool] works; the zero value of a field stands for its
// default.
type PoolOptions struct {
	Workers []Workers     // default: see [DefaultWorkers]
	Lease   time.Duration // how long a claim lasts, and the bound of one batch's work
	Poll    time.Duration // how often an idle worker looks for tasks that nobody rang for
	Sweep   time.Duration // how often due tasks and lost leases are looked for
	Grace   time.Duration // how long running tasks may go on after the stop
}

// DefaultWorkers is a sensible choice for one small machine.
func DefaultWorkers() []Workers {
	return []Workers{
		{Queue: QueueDefault, Count: 2, Batch: 256},
		{Queue: QueueFanOut, Count: 2, Batch: 4},
		{Queue: QueueRefill, Count: 1, Batch: 128},
	}
}

// Pool works on a queue with a fixed number of goroutines.
//
// No task is ever stuck: one that was claimed is done, dead, scheduled again, or
// free for others when its lease has run out and the next sweep of any process
// has passed, at most Lease + Sweep (and the time a sweep takes) after the claim.
type Pool struct {
	queue    Queue
	bell     *Bell
	handlers map[Type]Handler
	options  PoolOptions
	log      *slog.Logger
}

// NewPool returns a pool that gives each type of task to its handler.
func NewPool(queue Queue, bell *Bell, handlers map[Type]Handler, log *slog.Logger, o PoolOptions) *Pool {
	if len(o.Workers) == 0 {
		o.Workers = DefaultWorkers()
	}
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	return &Pool{queue: queue, bell: bell, handlers: handlers, options: o, log: log}
}

// Run works until ctx ends, whose end is no error. Then it claims no more, lets
// what runs finish within the grace period, cancels the rest, and hands back
// what was not finished, so that another process has it at once. It returns
// after its last goroutine.
func (p *Pool) Run(ctx context.Context) error {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var running, watching sync.WaitGroup
	watching.Go(func() { p.endGrace(ctx, work, cancel) })
	running.Go(func() { p.sweep(ctx) })
	for _, w := range p.options.Workers {
		for range w.Count {
			running.Go(func() { p.worker(ctx, work, w) })
		}
	}
	running.Wait()
	cancel(nil)
	watching.Wait()
	return nil
}

// endGrace cancels work when the grace period after the end of ctx is over.
func (p *Pool) endGrace(ctx, work context.Context, cancel context.CancelCauseFunc) {
	<-ctx.Done()
	timer := time.NewTimer(p.options.Grace)
	defer timer.Stop()
	select {
	case <-timer.C:
		cancel(errStopped)
	case <-work.Done():
	}
}

// errStopped is the cause of what is cancelled when the grace period is over.
var errStopped = errors.New("the process stops")

// worker claims and works until ctx ends; work is what its handlers run under.
func (p *Pool) worker(ctx, work context.Context, w Workers) {
	var trouble int
	for ctx.Err() == nil {
		heard := p.bell.Heard()
		batch, err := p.queue.Claim(ctx, w.Queue, w.Batch, p.options.Lease)
		switch {
		case err != nil:
			trouble++
			if ctx.Err() == nil {
				p.log.WarnContext(ctx, "claiming tasks failed, trying again", "queue", w.Queue, "error", err)
			}
			p.idle(ctx, nil, min(p.options.Poll<<min(trouble, 6), 10*time.Second))
		case len(batch) == 0:
			trouble = 0
			p.idle(ctx, heard, p.options.Poll)
		default:
			trouble = 0
			if !p.work(work, batch) { // what the batch needs is away
				p.idle(ctx, nil, time.Second)
			}
		}
	}
}

// idle waits for about d, or until heard is closed or ctx ends.
func (p *Pool) idle(ctx context.Context, heard <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(jitter(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-heard:
	case <-ctx.Done():
	}
}

// sweep keeps sweeping until ctx ends.
func (p *Pool) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		swept, err := p.queue.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "sweeping tasks failed, trying again", "error", err)
		}
		if swept.TookOver > 0 {
			p.log.WarnContext(ctx, "tasks were freed whose lease ran out", "count", swept.TookOver)
		}
		if swept.Due+swept.TookOver > 0 {
			p.bell.Ring()
		}
		switch {
		case err != nil: // with patience: each try is a line in the log
			p.idle(ctx, nil, 8*p.options.Sweep)
		case !swept.More:
			p.idle(ctx, nil, p.options.Sweep)
		}
	}
}
