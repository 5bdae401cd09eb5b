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

	"github.com/activityd/activityd/once"
)

// stages are the stages of histories. In memory the tests are of the proof itself: the histories
// are right, so that the proof must not refute them.
var stages = []struct {
	name string
	open func(t testing.TB, size int) *stage // nil: in memory
	each uint64                              // of so many histories that are asked for, the stage plays a single history
}{
	{"memory", nil, 1},
	{"mysql", onMySQL, 1},
	{"redis", onRedis, 1},
}

// few is how many histories porcupine may leave undecided in a small run.
const few = 3

// TestProve is the proof. "make prove-once" plays it in full; "make test" plays a small part,
// with new seeds each time. A failure tells the history.
func TestProve(t *testing.T) {
	t.Parallel()
	p := askedFor(t)
	for _, on := range stages {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			c := &campaign{name: on.name, proof: p, start: time.Now()}
			c.histories = max(1, p.histories/on.each)
			if on.open == nil {
				synctest.Test(t, c.inMemory)
			} else {
				s := on.open(t, p.size)
				c.onServer(t, s)
				if n := s.undecided.Load(); n > few && n*1000 > int64(c.total.histories) {
					t.Errorf("%d of %d histories took porcupine too long", n, c.total.histories)
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

	name  string
	start time.Time
	took  time.Duration

	mu    sync.Mutex
	total tally
}

// tally counts judged histories and their operations.
type tally struct {
	histories, operations int
	attempts              int // that were seen to begin
	lost, open            int // answers: of applied operations, and of operations that may have been applied
	events                int64
}

// count adds a history that was judged.
func (c *campaign) count(h *history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.histories++
	c.total.operations += len(h.ops)
	fences := map[once.Fence]bool{0: true}
	for _, o := range h.ops {
		out := o.Output.(answer)
		switch {
		case out.fate == applied:
			c.total.lost++
		case out.fate == unknown:
			c.total.open++
		case !fences[out.reply.State.Fence]:
			fences[out.reply.State.Fence] = true
			c.total.attempts++
		}
	}
}

// inMemory plays histories in a bubble.
func (c *campaign) inMemory(t *testing.T) {
	for n := range c.histories {
		s := inMemory(broken{})
		if err := c.judged(s, func() ([]*history, error) { return s.play(t.Context(), c.first+n) }); err != nil {
			t.Fatal(err)
		}
	}
}

// onServer plays histories on servers, some at a time. It judges a batch while the next plays.
func (c *campaign) onServer(t *testing.T, s *stage) {
	c.start = time.Now()
	var judging sync.WaitGroup
	defer judging.Wait()
	told := time.Now()
	for played := uint64(0); played < c.histories && !t.Failed() && (c.duration == 0 || time.Since(c.start) < c.duration); {
		var seeds []uint64
		for len(seeds) < c.size && played < c.histories {
			seeds = append(seeds, c.first+played)
			played++
		}
		histories, err := s.play(t.Context(), seeds...)
		judging.Wait()
		judging.Go(func() {
			if err := c.judged(s, func() ([]*history, error) { return histories, err }); err != nil {
				t.Error(err)
			}
		})
		if c.full && time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(t.Output(), "%s\n", c)
		}
	}
	judging.Wait()
	c.took = time.Since(c.start)
}

// judged plays histories, and judges them up to the first wrong history. To refute a history
// takes far longer than to find an order for a right history, and the first refutation says
// enough.
func (c *campaign) judged(s *stage, play func() ([]*history, error)) error {
	histories, err := play()
	if err != nil {
		return fmt.Errorf("history %d and those beside it: %w", histories[0].seed, err)
	}
	for _, h := range histories {
		if err = s.judge(h); err != nil {
			break
		}
		c.count(h)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.events += s.happened.Swap(0)
	return err
}

// prove plays a history for each seed, and judges them.
func (s *stage) prove(t *testing.T, seeds ...uint64) error {
	t.Helper()
	c := campaign{}
	return c.judged(s, func() ([]*history, error) { return s.play(t.Context(), seeds...) })
}

// String tells the numbers of the campaign.
func (c *campaign) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.total
	took := cmp.Or(c.took, time.Since(c.start))
	return fmt.Sprintf("%s: %d histories (seeds from %d) in %v, %.0f/s: %d operations, %d attempts; %d answers lost, %d operations that may have been applied; "+
		"%d events",
		c.name, n.histories, c.first, took.Round(time.Second), float64(n.histories)/took.Seconds(), n.operations, n.attempts, n.lost, n.open, n.events)
}
