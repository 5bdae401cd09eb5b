package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	// maxClaim bounds a claim for several workers.
	maxClaim = 1024
	// extensions is how often a lease is extended in its time.
	extensions = 4
	// lookAgain is when a fetcher claims again after a notification that brought nothing: a claim passes over locked rows, and
	// InnoDB locks a row for a moment to see that it is beyond the end of another claim.
	lookAgain = 100 * time.Millisecond

	firstClaimPause = 250 * time.Millisecond // after a claim failed; it doubles
	maxClaimPause   = 2 * time.Second
	outagePause     = time.Second // of a worker when all tasks of its share wait for a dependency, or for the database
)

// fetcher claims the tasks of a queue for its idle workers.
type fetcher struct {
	*run
	Workers

	notified <-chan struct{}
	idle     chan struct{} // holds a value for each idle worker
	shares   chan share
	last     time.Time // when the last claim began that was not full
}

// share is the part of a claim for a worker.
type share struct {
	claim *claim
	tasks []Task
}

func newFetcher(r *run, w Workers, notified <-chan struct{}) *fetcher {
	f := &fetcher{run: r, Workers: w, notified: notified, idle: make(chan struct{}, w.Count), shares: make(chan share, w.Count)}
	for range w.Count {
		f.idle <- struct{}{}
	}
	return f
}

// fetch claims until the stop.
func (f *fetcher) fetch() {
	defer close(f.shares)
	ctx := f.claiming
	var failed int
	var notified bool // since the last claim that brought tasks
	for {
		_ = retry.Sleep(ctx, time.Until(f.last.Add(f.options.Gap)))
		select {
		case <-f.idle:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		idle := 1
		for len(f.idle) > 0 { // only this goroutine takes from it
			<-f.idle
			idle++
		}
		select {
		case <-f.notified:
			notified = true
		default:
		}
		// A failure halves the next claim: a claim of rows of many megabytes, as a producer may write, can outlast its lease.
		used, err := f.claim(ctx, max(1, min(f.Batch*idle, max(f.Batch, maxClaim))>>min(failed, 16)), idle)
		for range idle - used {
			f.idle <- struct{}{}
		}
		if err != nil {
			failed++
			_ = retry.Sleep(ctx, retry.Backoff(failed+1, firstClaimPause, maxClaimPause))
			continue
		}
		if used > 0 {
			failed, notified = failed/2, false
			continue
		}
		wait := f.options.Poll
		if notified {
			wait = min(wait, lookAgain)
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
}

// claim claims up to n tasks, divides them among idle workers, and returns how many workers have some.
func (f *fetcher) claim(ctx context.Context, n, idle int) (used int, err error) {
	bounded, cancel := context.WithTimeout(ctx, f.Lease) // later, it would be worth nothing
	defer cancel()
	c := &claim{at: time.Now(), lease: f.Lease}
	list, err := f.queue.Claim(bounded, f.Queue, n, f.Lease)
	f.report(ctx, c.at, err, "claim failed", "queue", f.Queue)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if len(list) < n {
		f.last = c.at
	}
	few := max(1, f.Batch/4)
	used = min(idle, (len(list)+few-1)/few)
	c.held, c.until = list, c.at.Add(f.Lease)
	c.ctx, c.end = context.WithCancelCause(f.works) // a claim ends with the works, not with the fetching
	c.shares.Store(int32(used))
	f.running.Go(func() { f.keep(c) })
	for i := range used {
		f.shares <- share{c, list[len(list)*i/used : len(list)*(i+1)/used]}
	}
	return used, nil
}

// work runs the shares that it gets.
func (f *fetcher) work() {
	for s := range f.shares {
		waits := f.runShare(s)
		if s.claim.shares.Add(-1) == 0 {
			s.claim.end(nil)
		}
		if waits {
			_ = retry.Sleep(f.claiming, retry.Jitter(outagePause))
		}
		f.idle <- struct{}{}
	}
}

// claim is a set of tasks that were claimed together, and their lease.
type claim struct {
	ctx    context.Context // ends, with a cause, with the lease; and when all shares are finished
	end    context.CancelCauseFunc
	at     time.Time     // before the claim, by the clock of this process
	until  time.Time     // when the lease runs out, by the clock of this process
	lease  time.Duration // how long it lasts, from each extension
	shares atomic.Int32  // not finished

	mu   sync.Mutex
	held []Task // whose leases are to be extended
}

// release ends the extension of the leases of tasks: their results are about to be recorded, or their handler does not end.
func (c *claim) release(list []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := make(map[uint64]bool, len(list))
	for _, t := range list {
		gone[t.ID] = true
	}
	c.held = slices.DeleteFunc(slices.Clone(c.held), func(t Task) bool { return gone[t.ID] })
}

// keep extends the leases of a claim until its shares are finished. It ends the claim when another worker has a lease, and when the
// leases could not be extended in their time: another worker may have them.
func (r *run) keep(c *claim) {
	tick := time.NewTicker(max(c.lease/extensions, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		if err := r.extend(c); err != nil && c.ctx.Err() == nil {
			r.log.WarnContext(c.ctx, "lease lost; its tasks are cancelled", "error", err)
			c.end(err)
			return
		}
	}
}

// extend extends the leases of a claim. Its error wraps ErrLeaseLost; the next call tries again after any other failure.
func (r *run) extend(c *claim) error {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	at := time.Now()
	// A call that hangs leaves time for a second call, over another connection.
	bounded, cancel := context.WithTimeout(c.ctx, min(c.until.Sub(at), c.lease/2))
	defer cancel()
	lost, err := r.queue.Extend(bounded, held, c.lease)
	c.mu.Lock()
	same := len(c.held) == len(held) // else some were finished since
	c.mu.Unlock()
	switch {
	case err == nil && lost > 0 && same:
		return fmt.Errorf("%w: %d of %d tasks have another worker", ErrLeaseLost, lost, len(held))
	case err == nil:
		c.until = at.Add(c.lease)
	case !time.Now().Before(c.until):
		return fmt.Errorf("%w: it could not be extended: %w", ErrLeaseLost, err)
	}
	return nil
}
