package tasks_test

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/localserver/servertest"
)

// TestPropertyIndexIsRightAtRest: whatever happens, in any order, with any crash
// and any loss, once all tasks have run the sets keep the invariants and every
// answer is that of the definition; and no answer ever shows what may not be
// seen. A failure prints what happened, and the flag that repeats it;
// -rapid.checks=100000 looks further.
func TestPropertyIndexIsRightAtRest(t *testing.T) {
	t.Parallel()
	for _, activeOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("active only %v", activeOnly), func(t *testing.T) {
			t.Parallel()
			client := privateRedis(t)
			var total tally
			rapid.Check(t, func(rt *rapid.T) {
				counted, err := play(t.Context(), drawn(rt), rt.Logf, client, activeOnly, nil)
				if err != nil {
					rt.Fatal(err)
				}
				total.add(counted)
			})
			t.Logf("%+v", total)
		})
	}
}

// play runs one schedule and logs what happens in it.
func play(
	ctx context.Context, choose func(int) int, logf func(string, ...any), client *redis.Client, activeOnly bool, mutate mutation,
) (tally, error) {
	s, err := newSchedule(ctx, choose, client, activeOnly, mutate)
	if err != nil {
		return tally{}, err
	}
	s.logf = logf
	err = s.run()
	return s.counted, err
}

// drawn makes the choices those of rapid, so that a failure shrinks, to schedules
// of small numbers.
func drawn(t *rapid.T) func(int) int {
	evenly := make(map[int]*rapid.Generator[int])
	return func(n int) int {
		if evenly[n] == nil {
			evenly[n] = below(n)
		}
		return evenly[n].Draw(t, "choice")
	}
}

// below generates numbers from 0 to n-1 out of bits, because rapid's own numbers
// are far from evenly spread. The two bits too many even out the remainder.
func below(n int) *rapid.Generator[int] {
	bit := rapid.Bool()
	return rapid.Custom(func(t *rapid.T) int {
		number := 0
		for range bits.Len(uint(n-1)) + 2 {
			number <<= 1
			if bit.Draw(t, "bit") {
				number++
			}
		}
		return number % n
	})
}

// seeded makes choices that depend on the seed alone.
func seeded(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

func privateRedis(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *tally) add(d tally) {
	c.runs += d.runs
	c.doubled += d.doubled
	c.crashes += d.crashes
	c.conflicts += d.conflicts
	c.fromIndex += d.fromIndex
	c.walks += d.walks
}
