package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialSentinels returns a dialer for o. It gives a Sentinel a quarter of the dial timeout to accept a connection, and
// to answer. go-redis asks the same Sentinel twice, then all Sentinels twice, and drops a Sentinel only if it has failed
// before the dial times out. With a longer timeout it would keep asking a Sentinel that may have died together with the
// master. The dialer knows the Sentinels by o.SentinelAddrs; connections to unknown Sentinels, and to the servers, are
// as usual.
func dialSentinels(o *redis.FailoverOptions) func(ctx context.Context, network, addr string) (net.Conn, error) {
	usual := dialer(o.DialTimeout, o.TLSConfig)
	timeout := o.DialTimeout / 4
	bounded := dialer(timeout, o.TLSConfig)
	var sentinels sync.Map // their addresses, and the addresses by which they know each other
	for _, addr := range o.SentinelAddrs {
		sentinels.Store(addr, true)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if _, ok := sentinels.Load(addr); !ok {
			return usual(ctx, network, addr)
		}
		conn, err := bounded(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		sentinels.Store(conn.RemoteAddr().String(), true)
		return sentinelConn{conn, timeout}, nil
	}
}

// sentinelConn is a connection to a Sentinel.
type sentinelConn struct {
	net.Conn

	timeout time.Duration
}

// SetReadDeadline sets an earlier deadline where a reply may take longer than the timeout.
// A read without a deadline, which waits for a published message, stays unbounded.
func (c sentinelConn) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(c.timeout); t.After(most) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}
