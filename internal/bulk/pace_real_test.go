package bulk_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestAServerThatIsReallySlow: the line to a real Redis is delayed, cut, and
// mended.
func TestAServerThatIsReallySlow(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	changes := make(chan bulk.Pace, 1000)
	p := bulk.NewPacer(bulk.PacerOptions{
		Parallel: 4, Interval: 10 * time.Millisecond,
		Probes:  []bulk.Probe{{Name: "Redis", Ask: func(ctx context.Context) error { return client.Ping(ctx).Err() }, Floor: 60 * time.Millisecond}}, // the machine may be busy,
		Changed: func(s bulk.Pace) { changes <- s },
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	become := func(why string, mode bulk.Mode, batches int) {
		t.Helper()
		deadline := time.After(60 * time.Second)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for s := p.Pace(); s.Mode != mode || s.Batches != batches; s = p.Pace() {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %s", why, s)
			}
		}
	}
	become("as usual", bulk.Free, 4)
	proxy.Delay(150 * time.Millisecond)
	become("slow", bulk.Slowed, 1)
	proxy.Delay(0)
	become("quick again", bulk.Free, 4)
	proxy.Refuse(true)
	proxy.Cut()
	become("away", bulk.Stopped, 0)
	proxy.Refuse(false)
	become("back", bulk.Free, 4)
	for range len(changes) {
		t.Log(<-changes)
	}
}
