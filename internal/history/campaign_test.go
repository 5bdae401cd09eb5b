package history_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// campaign is a proof under way, shared by its workers. Workers look at it from within bubbles, where time
// stands still; code outside sets over and took.
type campaign struct {
	proof

	start   time.Time
	stopped atomic.Bool // something was violated
	over    atomic.Bool // the time for random histories
	redis   atomic.Uint64
	orders  atomic.Uint64
	runs    atomic.Uint64

	mu    sync.Mutex
	taken uint64        // seeds
	done  uint64        // random histories
	took  time.Duration // they
	total tally
	deal  func() (script, []move, bool)
}

// nextSeed returns the seed of the history to be played next.
func (c *campaign) nextSeed() (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() || c.over.Load() || c.taken == c.histories {
		return 0, false
	}
	c.taken++
	return c.first + c.taken - 1, true
}

func (c *campaign) played(counted tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.total = c.total.plus(counted)
}

// nextOrder returns the order to be played next.
func (c *campaign) nextOrder() (sc script, order []move, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() {
		return sc, nil, false
	}
	return c.deal()
}

// reportEvery is how often a long proof tells how far it is.
const reportEvery = 10 * time.Second

// report begins to tell how far the proof is, until the returned function is
// called.
func (c *campaign) report(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	reporting.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(t.Output(), "%v: %s\n", time.Since(c.start).Round(time.Second), c)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
}

// String counts the histories and orders so far.
func (c *campaign) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	if took == 0 {
		took = time.Since(c.start)
	}
	return fmt.Sprintf("%d random histories (seeds %d to %d, %.0f/s), %d of them on Redis; "+
		"%d orders of %d events in %d runs; in the random ones: %s",
		c.done, c.first, c.first+max(c.taken, 1)-1, float64(c.done)/took.Seconds(), c.redis.Load(),
		c.orders.Load(), c.events, c.runs.Load(), c.total)
}

// String names the counts.
func (t tally) String() string {
	return fmt.Sprintf("%d changes, %d photos shown later, %d runs of handlers, %d tasks done twice, %d crashes, %d conflicts, %d losses, "+
		"%d calls that failed for one user, reads: %d by the index, %d of them found in a row, %d walks, %d with a fault of Redis, %d ghosts; %d changes of broadcast members",
		t.changes, t.shown, t.handled, t.doubled, t.crashes, t.conflicts, t.lost, t.failed, t.indexed, t.fromRow, t.walked, t.faulted, t.ghosts, t.broadcasts)
}
