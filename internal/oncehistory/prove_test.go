package oncehistory_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// few is how many histories porcupine may leave undecided in a small run.
const few = 3

// TestProve is the proof. "make prove-once" plays it in full; "make test" plays a small part,
// with new seeds each time. A failure tells the history. In memory the test is of the proof itself: the
// histories are right, so that the proof must not refute them.
func TestProve(t *testing.T) {
	t.Parallel()
	p := askedFor(t)
	for name, open := range map[string]func(t testing.TB, size int) *stage{"memory": nil, "mysql": onMySQL, "redis": onRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &campaign{proof: p, start: time.Now()}
			if open == nil {
				synctest.Test(t, c.inMemory)
			} else {
				s := open(t, p.size)
				c.onServer(t, s)
				if n := s.undecided.Load(); n > few && n*1000 > int64(c.played) {
					t.Errorf("%d of %d histories took porcupine too long", n, c.played)
				}
			}
			t.Logf("%s", c)
		})
	}
}

// proof says how much is to be proved.
type proof struct {
	full      bool
	first     uint64        // the first seed
	histories uint64        // so many on each stage at most
	duration  time.Duration // and not after that; 0: as long as it takes
	size      int           // histories at the same time on a server
}

// askedFor is the proof that the environment asks for, as "make prove-once" sets it.
func askedFor(t *testing.T) proof {
	t.Helper()
	p := proof{first: rand.Uint64N(1e12), histories: enough / 4, size: 25}
	seed := os.Getenv("ACTIVITYD_SEED")
	if os.Getenv("ACTIVITYD_PROVE") == "" {
		return p
	}
	p.full, p.histories, p.size = true, 100_000, 100
	if seed != "" {
		p.histories, p.size = 1, 1
	}
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("ACTIVITYD_DURATION"), "0"))
	p.duration = duration
	if err := errors.Join(err, number("ACTIVITYD_SEED", &p.first), number("ACTIVITYD_RUNS", &p.histories)); err != nil {
		t.Fatalf("make prove-once RUNS=100000 DURATION=30m SEED=1234: %v", err)
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

// campaign is a proof under way on a stage.
type campaign struct {
	proof

	start              time.Time
	played, operations int   // histories that were judged, and their operations
	lost, open         int   // answers: of applied operations, and of operations that may have been applied
	events             int64 // that happened to the servers
}

// judge judges histories, up to the first wrong history: to refute a history takes far longer than to find an order for
// a right history, and the first refutation says enough.
func (c *campaign) judge(s *stage, histories []*history) error {
	c.events += s.happened.Swap(0)
	for _, h := range histories {
		if err := s.judge(h); err != nil {
			return err
		}
		c.played++
		c.operations += len(h.ops)
		for _, o := range h.ops {
			switch o.Output.(answer).fate {
			case applied:
				c.lost++
			case unknown:
				c.open++
			}
		}
	}
	return nil
}

// inMemory plays histories in a bubble.
func (c *campaign) inMemory(t *testing.T) {
	for n := range c.histories {
		s := inMemory(broken{})
		histories, err := s.play(t.Context(), c.first+n)
		if err := cmp.Or(err, c.judge(s, histories)); err != nil {
			t.Fatal(err)
		}
	}
}

// onServer plays histories on servers, some at a time. It judges a batch while the next plays.
func (c *campaign) onServer(t *testing.T, s *stage) {
	var judging sync.WaitGroup
	defer judging.Wait()
	told := time.Now()
	for next := uint64(0); next < c.histories && !t.Failed() && (c.duration == 0 || time.Since(c.start) < c.duration); {
		var seeds []uint64
		for ; len(seeds) < c.size && next < c.histories; next++ {
			seeds = append(seeds, c.first+next)
		}
		histories, err := s.play(t.Context(), seeds...)
		if err != nil {
			t.Fatalf("history %d and those beside it: %v", seeds[0], err)
		}
		judging.Wait()
		if c.full && time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(t.Output(), "%s\n", c)
		}
		judging.Go(func() {
			if err := c.judge(s, histories); err != nil {
				t.Error(err)
			}
		})
	}
}

// String tells the numbers of the campaign.
func (c *campaign) String() string {
	took := time.Since(c.start)
	return fmt.Sprintf("%d histories (seeds from %d) in %v, %.0f/s: %d operations; %d answers lost, %d operations that may have been applied; %d events",
		c.played, c.first, took.Round(time.Second), float64(c.played)/took.Seconds(), c.operations, c.lost, c.open, c.events)
}
