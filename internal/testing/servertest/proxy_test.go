package servertest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestProxy: a proxy forwards, delays, cuts, refuses, and leads new connections elsewhere.
func TestProxy(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	proxy := servertest.NewProxy(t, servertest.Redis(t).Addr())
	options, err := redis.ParseURL(proxy.RedisURL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries, options.DialerRetries, options.DisableIdentity = -1, 1, true
	options.ReadTimeout = time.Minute // the machine is busy
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	expect := func(what string, answers bool, err error) {
		t.Helper()
		if answers != (err == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("forwarded", true, conn.Set(t.Context(), "at", "the first", 0).Err())

	proxy.Delay(delay)
	began := time.Now()
	expect("delayed", true, conn.Ping(t.Context()).Err())
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a round trip took %v, want the delay both ways", took)
	}
	proxy.Delay(0)

	proxy.Refuse(true)
	expect("a new connection, refused", false, client.Ping(t.Context()).Err())
	expect("an open connection", true, conn.Ping(t.Context()).Err())
	proxy.Refuse(false)
	proxy.Move(servertest.Redis(t).Addr())
	expect("an open connection, after the move", true, conn.Get(t.Context(), "at").Err())
	proxy.Cut()
	expect("a connection that was cut", false, conn.Ping(t.Context()).Err())
	if n, err := client.Exists(t.Context(), "at").Result(); n != 0 || err != nil {
		t.Errorf("a new connection does not lead to the other server: %d, %v", n, err)
	}
}
