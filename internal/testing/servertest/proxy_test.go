package servertest_test

import (
	"database/sql"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// proxied is a Redis behind a proxy, and a client that never tries twice.
func proxied(t *testing.T) (*localserver.Redis, *servertest.Proxy, *redis.Client) {
	t.Helper()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	opts, err := redis.ParseURL(proxy.RedisURL())
	if err != nil {
		t.Fatal(err)
	}
	opts.MaxRetries, opts.DialerRetries, opts.DisableIdentity = -1, 1, true
	opts.ReadTimeout = time.Minute // the machine is busy
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return server, proxy, client
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	server, _, client := proxied(t)
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	direct := redis.NewClient(opts)
	defer func() { _ = direct.Close() }()
	if got, err := direct.Get(t.Context(), "key").Result(); err != nil || got != "value" {
		t.Errorf("got %q, %v through the server itself", got, err)
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	_, proxy, client := proxied(t)
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("a cut connection still answers")
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a new connection after the cut: %v", err)
	}
}

func TestProxyRefuse(t *testing.T) {
	t.Parallel()
	_, proxy, client := proxied(t)
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(true)
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a new connection is let in")
	}
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a connection that was open before: %v", err)
	}
	proxy.Refuse(false)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a new connection afterwards: %v", err)
	}
}

func TestProxyMove(t *testing.T) {
	t.Parallel()
	_, proxy, client := proxied(t)
	if err := client.Set(t.Context(), "at", "the first", 0).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Move(servertest.Redis(t).Addr())
	if at, err := client.Get(t.Context(), "at").Result(); at != "the first" {
		t.Errorf("an open connection leads to %q: %v", at, err)
	}
	proxy.Cut()
	_ = client.Ping(t.Context()).Err() // it was cut
	if n, err := client.Exists(t.Context(), "at").Result(); n != 0 || err != nil {
		t.Errorf("a new connection does not lead to the other server: %d, %v", n, err)
	}
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	_, proxy, client := proxied(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(delay)
	start := time.Now()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("a round trip took %v, want at least %v: the delay both ways", took, 2*delay)
	}
}

func TestProxyCutEndsADelay(t *testing.T) {
	t.Parallel()
	_, proxy, _ := proxied(t)
	proxy.Delay(time.Hour)
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading from a cut connection: %v", err)
			}
			return
		case <-again.C: // the proxy may not have accepted the connection yet
			proxy.Cut()
		}
	}
}

func TestProxyInFrontOfMySQL(t *testing.T) {
	t.Parallel()
	m := servertest.OwnMySQL(t)
	proxy := servertest.NewProxy(t, m.Addr())
	db, err := sql.Open("mysql", proxy.MySQLDSN(m.DSN(servertest.Database)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if n := count(t, db, "SELECT COUNT(*) FROM tasks"); n != 0 {
		t.Errorf("%d tasks, want none", n)
	}
}
