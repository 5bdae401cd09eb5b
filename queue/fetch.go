package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/retry"

	"github.com/activityd/activityd/internal/mysql"
)

// The pauses of a fetcher and a worker after an error.
const (
	firstClaimPause = 250 * time.Millisecond // after a claim failed; it doubles
	maxClaimPause   = 2 * time.Second
	outagePause     = time.Second            // of a worker all of whose tasks wait for a dependency, or MySQL
	firstOrderPause = 500 * time.Millisecond // of tasks that others of their ordering key hold up; it doubles
	maxOrderPause   = 5 * time.Second
)

const (
	// maxClaim bounds a claim for several workers.
	maxClaim = 1024
	fewTasks = 32                    // see gather
	fewBytes = 16 << 10              // likewise
	maxGap   = 10 * time.Millisecond // see gap
)

// lookAgain is after how long a fetcher claims again, and again, when a claim
// found nothing after a notification. A claim passes over rows that are locked,
// and InnoDB locks a row for a moment only to see that it is beyond the end of what
// another claim asked for.
func lookAgain() []time.Duration {
	return []time.Duration{10 * time.Millisecond, 100 * time.Millisecond}
}

// fetcher claims the tasks of one queue and divides them among the queue's
// workers.
//
// Tasks of one ordering key run one at a time and in the order of their claims: while a
// worker has tasks of a key, further ones go to the same worker, and all others to workers
// that are idle. A worker has at most one share of a claim in work and one that waits; what
// would be the second is handed back for a while, which grows with each time, so that a
// task that hangs does not gather all later ones of its key in memory. Those may then be
// overtaken. (Between processes, and between two queues, nothing keeps an order: handlers
// must not depend on it.)
type fetcher struct {
	*run
	Workers
	notified <-chan struct{}
	paused   atomic.Bool // true until the first sweep
	next     time.Time   // when to claim again, at the earliest; the fetcher's goroutine only

	mu      sync.Mutex
	workers []*worker
	owners  map[orderingKey]*owner
	took    time.Duration // of a share, the moving average of about the last eight
	freed   chan struct{} // gets a value when a worker becomes idle; holds one
}

// worker is one goroutine of a queue.
type worker struct {
	shares chan share // what waits for it; holds one
	busy   int        // shares that wait or are in work, under fetcher.mu
}

// owner is the worker that has the unfinished tasks of an ordering key.
type owner struct {
	*worker
	tasks   int
	refused int // claims of which tasks were handed back
}

// share is what one worker gets of a claim.
type share struct {
	claim *claim
	tasks []Task
}

func newFetcher(r *run, w Workers, notified <-chan struct{}) *fetcher {
	w.Batch = max(1, w.Batch)
	w.Lease = cmp.Or(w.Lease, r.options.Lease)
	f := &fetcher{run: r, Workers: w, notified: notified, owners: make(map[orderingKey]*owner), freed: make(chan struct{}, 1)}
	f.paused.Store(true)
	for range w.Count {
		f.workers = append(f.workers, &worker{shares: make(chan share, 1)})
	}
	return f
}

// fetch claims and divides until the stop. Then it closes the channels of the
// workers.
func (f *fetcher) fetch() {
	ctx := f.claiming
	var failed int
	var notified bool // since the last claim that succeeded
	var again []time.Duration
	for {
		idle := f.awaitIdle(ctx)
		if len(idle) == 0 { // the stop
			break
		}
		select {
		case <-f.notified:
			notified = true
		default:
		}
		found := false
		if !f.paused.Load() {
			// After failed claims it asks for half as many tasks each time: with rows of many
			// megabytes, that a producer wrote, a large claim can outlast its lease. The next one
			// after a success is twice as large, and not at once as large as those that failed.
			list, err := f.claim(ctx, max(1, min(f.Batch*len(idle), max(f.Batch, maxClaim))>>failed), idle)
			if err != nil {
				failed++
				_ = retry.Sleep(ctx, retry.Backoff(failed+1, firstClaimPause, maxClaimPause))
				continue
			}
			failed = max(0, min(failed, 9)-1)
			found = len(list) > 0
		}
		if found {
			notified, again = false, nil
			continue
		}
		if notified {
			again = lookAgain()
		}
		wait := f.options.Poll
		if len(again) > 0 {
			wait, again = min(wait, again[0]), again[1:]
		}
		timer := time.NewTimer(retry.Jitter(wait))
		select {
		case <-f.notified:
			notified = true
		case <-timer.C:
			notified = false
		case <-ctx.Done():
		}
		timer.Stop()
	}
	for _, w := range f.workers {
		close(w.shares)
	}
}

// gap is the time between claims that are not full and are gathered, while half of the workers or more are busy: that of a share
// divided by the workers, maxGap at most. So shares that take no longer than maxGap times the workers begin one after the other,
// evenly, and a worker is nearly always idle when a task comes. Without it all of them began within a moment, with a few tasks
// each, and what came next waited until they ended.
func (f *fetcher) gap() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return min(f.took/time.Duration(len(f.workers)), maxGap)
}

// awaitIdle waits until the next claim may be, and returns the workers that are idle then, at least one; none when ctx ends.
// Only the fetcher gives work, so they stay idle until it does.
func (f *fetcher) awaitIdle(ctx context.Context) (idle []*worker) {
	_ = retry.Sleep(ctx, time.Until(f.next))
	for ctx.Err() == nil {
		f.mu.Lock()
		for _, w := range f.workers {
			if w.busy == 0 {
				idle = append(idle, w)
			}
		}
		f.mu.Unlock()
		if len(idle) > 0 {
			return idle
		}
		select {
		case <-f.freed:
		case <-ctx.Done():
		}
	}
	return nil
}

// claim claims up to n tasks, and gives each to the worker that has others of its ordering key, or
// else to an idle one, see gather. What nothing is free for is handed back; and what may have been claimed though that
// failed, as soon as the database answers: nothing works on it, and until its
// lease ends no other process would.
func (f *fetcher) claim(ctx context.Context, n int, idle []*worker) ([]Task, error) {
	bounded, cancel := context.WithTimeout(ctx, f.Lease) // later, it would be worth nothing
	defer cancel()
	c := &claim{at: time.Now(), lease: f.Lease, pause: retry.Jitter(maxPause)}
	list, err := f.queue.Claim(bounded, f.Queue, n, f.Lease)
	f.report(ctx, c.at, err, "claim failed", "queue", f.Queue)
	if err != nil {
		f.store(handBack(list, 0, errUncertain), true) // also after the end of ctx
		return nil, err
	}
	if len(list) > 0 {
		c.held, c.until = list, c.at.Add(f.Lease)
		c.ctx, c.end = context.WithCancelCause(f.works)
		some, gathered := f.gather(list, idle)
		if gathered && len(list) < n && 2*len(idle) <= len(f.workers) {
			f.next = c.at.Add(f.gap())
		}
		f.divide(c, some) // a claim ends with the works, not with the fetching
	}
	return list, nil
}

// gather returns the idle workers to which a claim goes: so many that each has fewTasks on average, or a quarter of a batch if that
// is less, and fewBytes of arguments, as these cost hardly more than one task does. It is all of them where a batch is too
// small for that, or a task has an ordering key: later tasks of that key wait for the same worker, which must not have many keys.
func (f *fetcher) gather(list []Task, idle []*worker) (some []*worker, gathered bool) {
	few := min(f.Batch/4, fewTasks)
	size := 0
	for _, t := range list {
		if _, ordered := f.kinds.orderingKeyOf(t); ordered || few < 2 {
			return idle, false
		}
		size += len(t.Payload)
	}
	wanted := max((len(list)+few-1)/few, (size+fewBytes-1)/fewBytes)
	return idle[:min(len(idle), wanted)], true
}

// divide gives out what was claimed.
func (f *fetcher) divide(c *claim, idle []*worker) {
	shares := make(map[*worker][]Task)
	rest := make(map[*owner][]Task)
	f.mu.Lock()
	next := 0
	for _, t := range c.held {
		key, ordered := f.kinds.orderingKeyOf(t)
		o := f.owners[key]
		if !ordered || o == nil {
			o = &owner{worker: idle[next%len(idle)]}
			next++
		} else if len(o.shares) > 0 { // only this goroutine adds to them
			rest[o] = append(rest[o], t)
			continue
		}
		if ordered {
			o.tasks++
			f.owners[key] = o
		}
		shares[o.worker] = append(shares[o.worker], t)
	}
	for w := range shares {
		w.busy++
	}
	f.mu.Unlock()
	f.keep(c, len(shares))
	for w, tasks := range shares {
		w.shares <- share{c, tasks}
	}
	for o, tasks := range rest {
		o.refused++ // only this goroutine uses it
		c.release(tasks)
		f.store(handBack(tasks, retry.Backoff(o.refused, firstOrderPause, maxOrderPause), errOrder), false)
	}
}

var errUncertain = errors.New("the answer to the claim was lost")

var errOrder = errors.New("earlier tasks of the same ordering key are not finished")

// work runs the shares that the worker is given.
func (f *fetcher) work(w *worker) {
	for s := range w.shares {
		began := time.Now()
		healthy := f.runShare(s)
		f.mu.Lock()
		f.took += (time.Since(began) - f.took) / 8
		for _, t := range s.tasks {
			if key, ordered := f.kinds.orderingKeyOf(t); ordered {
				f.owners[key].tasks--
				if f.owners[key].tasks == 0 {
					delete(f.owners, key)
				}
			}
		}
		f.mu.Unlock()
		if s.claim.shares.Add(-1) == 0 {
			s.claim.end(nil)
		}
		if !healthy {
			_ = retry.Sleep(f.claiming, retry.Jitter(outagePause))
		}
		f.mu.Lock()
		w.busy--
		f.mu.Unlock()
		select {
		case f.freed <- struct{}{}:
		default:
		}
	}
}

// report notes how a call to MySQL ended that began at a time. An error that says nothing
// about whether the server can be used, such as a missing right or column, is logged as
// message, at most once a minute. After ctx has ended, nothing is said.
func (r *run) report(ctx context.Context, began time.Time, err error, message string, about ...any) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, mysql.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		r.options.MySQL.Report(ctx, began, err)
	default:
		r.lines.Log(ctx, slog.LevelError, "", message, slices.Concat(about, []any{"error", err})...)
	}
}
