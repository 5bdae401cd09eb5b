package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// extensions is how often a lease is extended in its time.
const extensions = 4

// claim is what was claimed at once, and its lease.
type claim struct {
	ctx    context.Context // ends, with a cause, with the lease; and when all shares are finished
	end    context.CancelCauseFunc
	at     time.Time     // before the claim, by the clock of this process
	until  time.Time     // when the lease runs out, by the clock of this process
	lease  time.Duration // how long it lasts, from each extension
	pause  time.Duration // of tasks that wait for a dependency: one for all, they are written together
	shares atomic.Int32  // not finished

	mu   sync.Mutex
	held []Task // whose leases are to be extended
}

// release ends the extension of the leases of tasks: their results are about to be
// recorded, or their handler does not end.
func (c *claim) release(list []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(slices.Clone(c.held), func(held Task) bool {
		return slices.ContainsFunc(list, func(t Task) bool { return t.ID == held.ID })
	})
}

// keep extends the leases of a claim, on a goroutine of its own, until its shares
// are finished. It ends the claim when a lease is another's; and when the leases
// could not be extended as long as they last, because then they may be.
func (r *run) keep(c *claim, shares int) {
	c.shares.Store(int32(shares))
	if shares == 0 {
		c.end(nil)
		return
	}
	r.running.Go(func() {
		tick := time.NewTicker(max(c.lease/extensions, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-c.ctx.Done():
				return
			}
			if err := r.extend(c); err != nil && c.ctx.Err() == nil {
				if !errors.Is(err, mysql.ErrUnavailable) { // else the log has the outage
					r.log.WarnContext(c.ctx, "lease lost; its tasks are cancelled", "error", err)
				}
				c.end(err)
				return
			}
		}
	})
}

// extend extends the leases of a claim. It returns an error that wraps
// ErrLeaseLost; whatever else fails is tried again by the next one.
func (r *run) extend(c *claim) error {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	at := time.Now()
	// One that hangs leaves time for another, on another connection.
	bounded, cancel := context.WithTimeout(c.ctx, min(c.until.Sub(at), c.lease/2))
	defer cancel()
	lost, err := r.queue.Extend(bounded, held, c.lease)
	switch {
	case err == nil && lost > 0 && c.holds(len(held)): // else some were finished since
		return fmt.Errorf("%w: %d of %d tasks have another worker", ErrLeaseLost, lost, len(held))
	case err == nil:
		c.until = at.Add(c.lease)
	case !time.Now().Before(c.until):
		return fmt.Errorf("%w: it could not be extended: %w", ErrLeaseLost, err)
	}
	return nil
}

// holds reports whether the leases of n tasks are extended.
func (c *claim) holds(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) == n
}
