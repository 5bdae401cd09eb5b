package main

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// wire is a proxy before a server that counts the round trips of any protocol.
type wire struct {
	addr  string
	trips atomic.Int64
}

// newWire returns a proxy before the server at a unix socket. It lives as long as the test.
func newWire(t *testing.T, server string) *wire {
	t.Helper()
	w := &wire{addr: filepath.Join(t.TempDir(), "sock")}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(ctx, "unix", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
			var asked atomic.Bool
			running.Go(func() { carry(server, client, func() { asked.Store(true) }) })
			running.Go(func() {
				defer end()
				carry(client, server, func() {
					if asked.CompareAndSwap(true, false) { // the first piece of the answer
						w.trips.Add(1)
					}
				})
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		stop()
		running.Wait()
	})
	return w
}

// carry copies until either end is closed, and notes each piece before it passes it on.
func carry(to, from net.Conn, noted func()) {
	defer func() { _, _ = to.Close(), from.Close() }()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			noted()
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
