package once_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// network lies between a client of Redis, which repeats commands by itself, and the server.
type network struct {
	address string
	lose    atomic.Pointer[func()] // the next answer is lost; called before the client notices
	delay   atomic.Bool            // the next request arrives late: not before deliver
	deliver func() error
}

// dial implements redis.Options.Dialer.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", n.address)
	return &networkConn{Conn: conn, network: n}, err
}

// client returns a client with the repetitions that go-redis has by itself.
func (n *network) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Dialer: n.dial, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

type networkConn struct {
	net.Conn

	network *network
	late    bool // the last request is on its way
	broken  bool
}

// Write implements net.Conn.
func (c *networkConn) Write(p []byte) (int, error) {
	if !c.network.delay.CompareAndSwap(true, false) {
		return c.Conn.Write(p)
	}
	c.late = true
	request := append([]byte(nil), p...)
	c.network.deliver = func() error {
		if _, err := c.Conn.Write(request); err != nil {
			return err
		}
		_, err := c.Conn.Read(make([]byte, 1024)) // it has been carried out
		return err
	}
	return len(p), nil
}

// Read implements net.Conn.
func (c *networkConn) Read(p []byte) (int, error) {
	switch {
	case c.late:
		return 0, os.ErrDeadlineExceeded
	case c.broken:
		return 0, io.ErrUnexpectedEOF
	}
	size, err := c.Conn.Read(p)
	if then := c.network.lose.Swap(nil); then != nil {
		(*then)()
		c.broken = true
		return 0, io.ErrUnexpectedEOF
	}
	return size, err
}

// Close implements net.Conn. A request on its way arrives all the same.
func (c *networkConn) Close() error {
	if c.late {
		return nil
	}
	return c.Conn.Close()
}

// A failure or a release that the client repeats by itself is answered as the first time,
// though another owner has acquired the name in between.
func TestRedisClientRepeats(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	n := &network{address: server.Addr()}
	direct, store := once.NewRedis(connect(t, server)), once.NewRedis(n.client(t))
	for _, a := range []once.Action{once.Fail, once.Release} {
		name := string(a)
		acquire(t, direct, "first", name) // the server learns the script
		if _, err := direct.Apply(t.Context(), "first", once.Operation{Action: a, Owner: name}); err != nil {
			t.Fatal(err)
		}
		acquire(t, store, name, "me")
		then := func() { acquire(t, direct, name, "another") }
		n.lose.Store(&then)
		r, err := store.Apply(t.Context(), name, once.Operation{Action: a, Owner: "me"})
		if err != nil || r.Outcome != once.OK || r.State.Owner != "another" || r.Changed {
			t.Errorf("%s: %+v, %v, want it answered as the first time", a, r, err)
		}
	}
}

// A request to acquire that arrives when its owner has ended the attempt begins no other.
func TestRedisAnAcquisitionArrivesLate(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	n := &network{address: server.Addr()}
	store := once.NewRedis(n.client(t))
	acquire(t, store, "warm", "me") // the script is known
	n.delay.Store(true)
	acquire(t, store, "a", "me")
	r, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Fail, Owner: "me"})
	if err != nil || r.Outcome != once.OK {
		t.Fatal(r, err)
	}
	if err := n.deliver(); err != nil {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), "a")
	if err != nil || got.State.Phase != once.Free || got.State.Attempt != 1 {
		t.Errorf("%+v, %v, want it free after 1 attempt", got.State, err)
	}
}
