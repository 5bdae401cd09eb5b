package wake_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/wake"
)

// onBoth runs a test on the imitation of Redis and on a real one.
func onBoth(t *testing.T, test func(t *testing.T, o *redis.Options)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, &redis.Options{Addr: miniredis.RunT(t).Addr()})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, onSocket(servertest.Redis(t).Addr()))
	})
}

func onSocket(path string) *redis.Options { return &redis.Options{Addr: path, Network: "unix"} }

// A ring is heard by all other processes, and not once more by this one.
func TestARingIsHeardElsewhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, o *redis.Options) {
		here, log := start(t, o)
		there, _ := start(t, o)
		yonder, _ := start(t, o)
		here.Notify("default", "fan_out")
		for _, b := range []*notifier{there, yonder} {
			b.awaits(t, "default")
			b.awaits(t, "fan_out")
		}
		there.Notify("refill")
		here.awaits(t, "refill")
		if got := here.rung(); !slices.Equal(got, []string{"refill"}) { // its own came before
			t.Errorf("who rang was told of %q", got)
		}
		if log.String() != "" {
			t.Errorf("log %s", log)
		}
	})
}

// A site may publish by itself. What is no name is ignored.
func TestASiteMayPublish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, o *redis.Options) {
		b, log := start(t, o)
		client := open(t, o)
		for _, payload := range []string{"", "\x00\xff,,@,", strings.Repeat("x", 100_000), "fan_out, default"} {
			if err := client.Publish(t.Context(), "activityd_wake", payload).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b.awaits(t, "default")
		if got := b.rung(); !slices.Equal(got, []string{"\x00", "fan_out", "default"}) && !slices.Equal(got, []string{"fan_out", "default"}) {
			t.Errorf("rung for %q", got)
		}
		if log.String() != "" {
			t.Errorf("log %s", log)
		}
	})
}

// Ten thousand rings are a handful of messages; the first leaves at once, and the
// last is in one of them.
func TestABurstIsFewMessages(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, o *redis.Options) {
		b, _ := start(t, o)
		there, _ := start(t, o)
		listening := open(t, o).Subscribe(t.Context(), wake.Channel)
		t.Cleanup(func() { _ = listening.Close() })
		if _, err := listening.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var ringing sync.WaitGroup
		for range 4 {
			ringing.Go(func() {
				for range 2500 {
					b.Notify("default")
				}
			})
		}
		ringing.Wait()
		b.Notify("last")
		rang := time.Since(begin)
		there.awaits(t, "last")
		most := 3 + int(time.Since(begin)/wake.Burst)
		if err := open(t, o).Publish(t.Context(), wake.Channel, "end").Err(); err != nil {
			t.Fatal(err)
		}
		var messages []string
		for message := ""; message != "end"; {
			m, err := listening.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			message = m.Payload
			messages = append(messages, message)
		}
		if n := len(messages) - 1; n < 1 || n > most || n > 1000 {
			t.Errorf("%d messages for 10,000 rings, want at most %d: %.200q", n, most, messages)
		}
		t.Logf("10,001 rings in %v were %d messages", rang, len(messages)-1)
	})
}

// More queues than a message holds, or names that no message can hold, do no
// harm: polls find what is in them.
func TestNamesThatCannotBeTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, o *redis.Options) {
		b, _ := start(t, o)
		there, _ := start(t, o)
		b.Notify("", "a,b", "@c", " d", strings.Repeat("e", 65))
		var many []string
		for i := range 1000 {
			many = append(many, fmt.Sprint("queue", i))
		}
		b.Notify(append([]string{"first"}, many...)...)
		there.awaits(t, "first")
		if got := there.rung(); len(got) > 100 || slices.ContainsFunc(got, func(q string) bool { return !wake.Valid(q) }) {
			t.Errorf("rung for %d queues: %q", len(got), got)
		}
	})
}

// What was rung for before Run, and just before the stop, is published.
func TestNothingIsLostAtTheEnds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, o *redis.Options) {
		there, _ := start(t, o)
		b := &notifier{}
		w := wake.New(open(t, o), b, quiet())
		b.Notify("early")
		stop := run(t, w)
		there.awaits(t, "early")
		b.Notify("late")
		stop()
		there.awaits(t, "late")
	})
}
