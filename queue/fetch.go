package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	// extensions is how often a lease is extended in its time.
	extensions = 4
	// lookAgain is when a worker claims again after a notification that brought nothing: a claim passes over locked rows, and
	// InnoDB locks a row for a moment to see that it is beyond the end of another claim.
	lookAgain = 100 * time.Millisecond

	firstClaimPause = 250 * time.Millisecond // after a claim failed; it doubles
	maxClaimPause   = 2 * time.Second
	outagePause     = time.Second // of a worker when all tasks of its claim wait for a service
)

// claimer has the workers of a queue take turns: a worker at a time looks for tasks, so that a notification wakes a single worker.
type claimer struct {
	*run
	Workers
	notified <-chan struct{}
	turn     chan struct{} // holds a value while no worker looks
	idle     atomic.Int32  // workers that wait for their turn

	// The worker whose turn it is has the rest.
	last     time.Time // when the last claim began that was not full
	failed   int       // claims in a row; a claim that brings tasks halves it
	wasAsked bool      // there was a notification since the last claim that brought tasks
}

// work is a worker: it claims tasks in its turn, and runs them.
func (f *claimer) work() {
	for {
		f.idle.Add(1)
		<-f.turn
		f.idle.Add(-1)
		c := f.next()
		f.turn <- struct{}{}
		if c == nil {
			return
		}
		if f.do(c) {
			_ = retry.Sleep(f.claiming, retry.Jitter(outagePause))
		}
	}
}

// next waits until a claim brings tasks. After the stop it returns nil.
func (f *claimer) next() *claim {
	for {
		_ = retry.Sleep(f.claiming, time.Until(f.last.Add(f.options.Gap)))
		if f.claiming.Err() != nil {
			return nil
		}
		select {
		case <-f.notified:
			f.wasAsked = true
		default:
		}
		c, err := f.claim()
		switch {
		case err != nil:
			f.failed++
			_ = retry.Sleep(f.claiming, retry.Backoff(f.failed+1, firstClaimPause, maxClaimPause))
		case c != nil:
			f.failed, f.wasAsked = f.failed/2, false
			return c
		default:
			f.wait()
		}
	}
}

// wait waits for a notification, the next poll, or the stop.
func (f *claimer) wait() {
	pause := f.options.Poll
	if f.wasAsked {
		pause = min(pause, lookAgain)
	}
	timer := time.NewTimer(retry.Jitter(pause))
	defer timer.Stop()
	select {
	case <-f.notified:
		f.wasAsked = true
	case <-timer.C:
		f.wasAsked = false
	case <-f.claiming.Done():
	}
}

// claim is a set of tasks that were claimed together.
type claim struct {
	tasks []Task
	at    time.Time     // before the claim, by the clock of this process
	lease time.Duration // from at, and from each extension
	open  atomic.Int64  // tasks whose results are not about to be recorded
}

// claim claims tasks for a worker; nil: there are none. A failure halves the next claim: a claim of rows of many megabytes, as a producer
// may write, can outlast its lease.
func (f *claimer) claim() (*claim, error) {
	n := f.Batch
	if f.idle.Load() > 0 {
		n /= 4
	}
	n = max(1, n>>min(f.failed, 16))
	bounded, cancel := context.WithTimeout(f.claiming, f.Lease) // later, it would be worth nothing
	defer cancel()
	c := &claim{at: time.Now(), lease: f.Lease}
	var err error
	c.tasks, err = f.queue.Claim(bounded, f.Queue, n, f.Lease)
	f.report(f.claiming, c.at, err, "claim failed", "queue", f.Queue)
	if err != nil || len(c.tasks) == 0 {
		return nil, err
	}
	if len(c.tasks) < n {
		f.last = c.at
	}
	c.open.Store(int64(len(c.tasks)))
	return c, nil
}

// keep extends the lease of a claim until ctx, the context of its handlers, ends. It calls lose when another worker has a task of the
// claim, and when the lease could not be extended in its time: another worker may have them all.
func (r *run) keep(ctx context.Context, c *claim, lose context.CancelCauseFunc) {
	until := c.at.Add(c.lease)
	tick := time.NewTicker(max(c.lease/extensions, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if c.open.Load() == 0 {
			continue
		}
		at := time.Now()
		// A call that hangs leaves time for a second call, over another connection.
		bounded, cancel := context.WithTimeout(ctx, min(until.Sub(at), c.lease/2))
		lost, err := r.queue.Extend(bounded, c.tasks, c.lease)
		cancel()
		switch {
		case err == nil && len(c.tasks)-lost >= int(c.open.Load()): // a task that was recorded is lost, too
			until = at.Add(c.lease)
			continue
		case err == nil:
			err = fmt.Errorf("%w: %d of %d tasks have another worker", ErrLeaseLost, lost, len(c.tasks))
		case time.Now().Before(until):
			continue
		default:
			err = fmt.Errorf("%w: it could not be extended: %w", ErrLeaseLost, err)
		}
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "lease lost; its tasks are cancelled", "error", err)
			lose(err)
		}
		return
	}
}
