package history_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestProve is the proof. "make prove" plays it in full; by default it plays a small part with new seeds each
// time. A failure tells the seed that repeats the history.
func TestProve(t *testing.T) {
	t.Parallel()
	p := askedFor(t)
	if p.replay {
		replay(t, p.first)
		return
	}
	c := &campaign{proof: p, start: time.Now()}
	if p.full {
		defer c.report(t)()
	}
	if p.duration > 0 {
		defer time.AfterFunc(p.duration, func() { c.over.Store(true) }).Stop()
	}
	c.each(t, "random", func(t *testing.T) { synctest.Test(t, c.random) })
	c.took = time.Since(c.start)
	if p.full {
		t.Run("redis", c.onRedis)
	}
	deal, end := iter.Pull2(p.allOrders())
	defer end()
	c.deal = deal
	c.each(t, "orders", c.enumerate)
	t.Logf("%s", c)
}

// proof says how much is to be proved.
type proof struct {
	full      bool
	replay    bool          // of the history of seed first, and nothing else
	first     uint64        // the first seed
	histories uint64        // the most random histories
	duration  time.Duration // and not after that; 0: as long as it takes
	events    int           // how many of each script are enumerated
	between   int           // of how many, all interleavings
	each      uint64        // a proof plays a random 1/each of the orders
}

// askedFor is the proof that the environment asks for, as "make prove" sets it.
func askedFor(t *testing.T) proof {
	t.Helper()
	p := proof{first: rand.Uint64N(1e12), histories: 200, events: 3, between: 2, each: 2}
	if os.Getenv("ACTIVITYD_PROVE") == "" {
		return p
	}
	p.full, p.histories, p.events, p.between, p.each = true, 1_000_000, 7, 4, 1
	seed := os.Getenv("ACTIVITYD_SEED")
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("ACTIVITYD_DURATION"), "0"))
	errs := []error{err, number("ACTIVITYD_SEED", &p.first), number("ACTIVITYD_RUNS", &p.histories)}
	events := uint64(p.events)
	errs = append(errs, number("ACTIVITYD_EVENTS", &events))
	p.replay, p.duration, p.events = seed != "", duration, int(events)
	p.between = min(p.between, p.events)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("make prove RUNS=1000000 DURATION=30m EVENTS=7 SEED=1234: %v", err)
	}
	return p
}

// number reads a variable of the environment, if it is set.
func number(name string, n *uint64) (err error) {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	if *n, err = strconv.ParseUint(text, 10, 64); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// each runs work on all processors.
func (c *campaign) each(t *testing.T, name string, work func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				work(t)
			})
		}
	})
}

// random plays histories, until there are enough.
func (c *campaign) random(t *testing.T) {
	p := player{open: inMemory, outages: true, bubble: true}
	for seed, ok := c.nextSeed(); ok; seed, ok = c.nextSeed() {
		p.broadcasts = hasBroadcasts(seed)
		counted, err := p.play(t.Context(), seeded(seed), nil)
		c.played(counted)
		if err != nil {
			c.stopped.Store(true)
			t.Error(story(seed, err))
		}
	}
}

// hasBroadcasts reports whether there are broadcast members in the history of a seed.
func hasBroadcasts(seed uint64) bool { return seed%2 == 1 }

// story tells why a history failed, and how to see its steps.
func story(seed uint64, err error) string {
	return fmt.Sprintf("seed %d: %v\nevery step of it: make prove SEED=%d\n", seed, err, seed)
}

// replay tells each step of the history of a seed, in memory and, if it holds there, on Redis.
func replay(t *testing.T, seed uint64) {
	t.Helper()
	tell := func(format string, args ...any) { fmt.Fprintf(t.Output(), format+"\n", args...) }
	var err error
	tell("seed %d in memory:", seed)
	synctest.Test(t, func(t *testing.T) {
		p := player{open: inMemory, outages: true, bubble: true, broadcasts: hasBroadcasts(seed)}
		if _, err = p.play(t.Context(), seeded(seed), tell); err != nil {
			t.Error(story(seed, err))
		}
	})
	if err != nil {
		return
	}
	tell("seed %d on Redis:", seed)
	if _, err := (player{open: inRedis(privateRedis(t)), outages: true, broadcasts: hasBroadcasts(seed)}).play(t.Context(), seeded(seed), tell); err != nil {
		t.Error(err)
	}
}

// onRedis plays a thousandth of the histories again on a real Redis.
func (c *campaign) onRedis(t *testing.T) {
	p := player{open: inRedis(privateRedis(t)), outages: true}
	for seed := c.first; seed <= c.first+c.histories/1000 && !c.stopped.Load(); seed++ {
		p.broadcasts = hasBroadcasts(seed)
		if _, err := p.play(t.Context(), seeded(seed), nil); err != nil {
			c.stopped.Store(true)
			t.Errorf("on Redis: %s", story(seed, err))
		}
		c.redis.Add(1)
	}
}

// enumerate plays the orders that are dealt.
func (c *campaign) enumerate(t *testing.T) {
	for sc, order, ok := c.nextOrder(); ok; sc, order, ok = c.nextOrder() {
		runs, err := sc.tryAll(t.Context(), inMemory, order)
		c.orders.Add(1)
		c.runs.Add(uint64(runs))
		if err != nil {
			c.stopped.Store(true)
			t.Error(err)
		}
	}
}

// allOrders are the orders of the enumeration, or their share.
func (p proof) allOrders() iter.Seq2[script, []move] {
	return func(play func(script, []move) bool) {
		n := p.first
		yield := func(sc script, order []move) bool {
			n++
			return n%p.each != 0 || play(sc, order)
		}
		for _, sc := range scripts {
			some, fewer := sc.first(p.events), sc.first(p.between)
			for _, orders := range []iter.Seq[[]move]{some.selected(), some.late(), some.deliveries()} {
				for order := range orders {
					if !yield(some, order) {
						return
					}
				}
			}
			for order := range fewer.interleavings() {
				if !yield(fewer, order) {
					return
				}
			}
		}
	}
}
