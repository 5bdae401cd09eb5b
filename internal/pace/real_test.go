package pace_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/pace"
)

// TestAServerThatIsReallySlow: the line to a real Redis is delayed, cut, and
// mended.
func TestAServerThatIsReallySlow(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	changes := make(chan pace.State, 1000)
	p := pace.New(pace.Options{
		Most: 4, Interval: 10 * time.Millisecond, Floor: 60 * time.Millisecond, // the machine may be busy
		Probes:  []pace.Probe{{Name: "Redis", Ask: func(ctx context.Context) error { return client.Ping(ctx).Err() }}},
		Changed: func(s pace.State) { changes <- s },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	become := func(why string, mode pace.Mode, batches int) {
		t.Helper()
		deadline := time.After(60 * time.Second)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for s := p.State(); s.Mode != mode || s.Batches != batches; s = p.State() {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %s", why, s)
			}
		}
	}
	become("as usual", pace.Free, 4)
	proxy.Delay(150 * time.Millisecond)
	become("slow", pace.Slowed, 1)
	proxy.Delay(0)
	become("quick again", pace.Free, 4)
	proxy.Refuse(true)
	proxy.Cut()
	become("away", pace.Stopped, 0)
	proxy.Refuse(false)
	become("back", pace.Free, 4)
	for range len(changes) {
		t.Log(<-changes)
	}
}
