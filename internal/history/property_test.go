package history_test

import (
	"math/bits"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestPropertyIndexIsRightAtRest: once all tasks have run, after any order of steps with any crash and any
// loss, the sets keep the invariants and every answer is that of the definition. No answer ever shows a
// hidden photo. The test is TestProve in small, on a real Redis; rapid makes the choices and shrinks them. A
// failure prints the steps and the flag that repeats it; -rapid.checks=100000 looks further.
func TestPropertyIndexIsRightAtRest(t *testing.T) {
	t.Parallel()
	p := player{open: inRedis(privateRedis(t)), outages: true}
	var total tally
	rapid.Check(t, func(rt *rapid.T) {
		counted, err := p.play(t.Context(), freshly(drawn(rt)), rt.Logf)
		if err != nil {
			rt.Fatal(err)
		}
		total = total.plus(counted)
	})
	t.Logf("%s", total)
}

// drawn takes the choices from rapid, so that a failure shrinks to a history of small numbers.
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

func privateRedis(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
