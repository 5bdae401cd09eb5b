package mysql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// proxy keeps the sessions of a server, and sends the statements of its clients to any of them. It serves a client
// at a time.
type proxy struct {
	driver.Connector

	shares atomic.Bool // the sessions; otherwise each client has its own
	resets atomic.Bool // a session before each statement

	sessions []mysql.DriverConn
	next     int
}

// client is a client's connection to a proxy.
type client struct {
	mysql.DriverConn

	proxy *proxy
}

func (p *proxy) Connect(ctx context.Context) (driver.Conn, error) {
	own, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	p.sessions = append(p.sessions, own.(mysql.DriverConn))
	return &client{own.(mysql.DriverConn), p}, nil
}

// Close leaves the session to the proxy.
func (*client) Close() error { return nil }

func (c *client) session(ctx context.Context) (s mysql.DriverConn, err error) {
	s = c.DriverConn
	for c.proxy.shares.Load() && s == c.DriverConn { // all sessions but its own, in turn
		c.proxy.next++
		s = c.proxy.sessions[c.proxy.next%len(c.proxy.sessions)]
	}
	if c.proxy.resets.Load() {
		_, err = s.ExecContext(ctx, "SET sql_mode = DEFAULT, time_zone = DEFAULT, max_sort_length = 64", nil)
	}
	return s, err
}

func (c *client) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, query, args)
}

func (c *client) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, query, args)
}

// A proxy may give each connection a session of its own as long as there are few. When it shares them, or takes
// settings away, the connections that are there are given up, and new connections are refused, with the reason.
func TestSharedSessionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{"shared": "CONNECTION_ID() was", "reset": "it lost what was set: "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := new(proxy)
			db, err := mysql.OpenThrough(servertest.MySQLDSN(t), func(c driver.Connector) driver.Connector { p.Connector = c; return p })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = db.Close()
				for _, s := range p.sessions {
					_ = s.Close()
				}
			})
			conns := hold(t, db, 2)
			sharing := map[string]*atomic.Bool{"shared": &p.shares, "reset": &p.resets}[name]
			sharing.Store(true)
			refused := func(when string) {
				t.Helper()
				err := mysql.Translate(t.Context(), "work", db.PingContext(t.Context()))
				if !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "a proxy shares sessions") || !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %v, want that sessions are shared, and %q", when, err, word)
				}
			}
			refused("a new connection")
			for _, c := range conns {
				if err := mysql.AskAgain(c); err != nil {
					t.Fatal(err)
				}
			}
			closeAll(t, conns)
			refused("connections that are there")
			if n := db.Stats().OpenConnections; n != 0 {
				t.Errorf("%d connections are kept", n)
			}
			sharing.Store(false)
			servertest.Eventually(t, "sessions are the clients' own again", func() bool { return db.PingContext(t.Context()) == nil })
		})
	}
}
