package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a proxy before a server that counts, for any protocol, the round trips and the
// bytes in both directions. It is for counting, not for timing. It can be slow, too.
type wire struct {
	dir, server string
	listener    net.Listener
	trips       atomic.Int64
	bytes       atomic.Int64
	delay       atomic.Int64 // of each piece, in nanoseconds
	lost        atomic.Int64 // of a thousand pieces; each comes late, as after TCP sent it again
	closed      chan struct{}
	running     sync.WaitGroup
	mu          sync.Mutex
	conns       []net.Conn
}

// newWire returns a proxy before the server at a unix socket. The caller closes it.
func newWire(ctx context.Context, server string) (*wire, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	w := &wire{dir: dir, server: server, closed: make(chan struct{})}
	var config net.ListenConfig
	if w.listener, err = config.Listen(ctx, "unix", w.addr()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.running.Go(w.accept)
	return w, nil
}

func (w *wire) addr() string { return filepath.Join(w.dir, "sock") }

// Close closes all connections and waits for the goroutines.
func (w *wire) Close() error {
	err := w.listener.Close()
	close(w.closed)
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
	return errors.Join(err, os.RemoveAll(w.dir))
}

// accept forwards connections until the listener is closed.
func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "unix", w.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		var requested atomic.Bool
		w.running.Go(func() { w.carry(server, client, func() { requested.Store(true) }) })
		w.running.Go(func() {
			w.carry(client, server, func() {
				if requested.CompareAndSwap(true, false) { // the first piece of the answer
					w.trips.Add(1)
				}
			})
		})
	}
}

// carry copies from one end to the other until either is closed. It calls noted for each
// piece before it passes it on.
func (w *wire) carry(to, from net.Conn, noted func()) {
	defer func() { _, _ = to.Close(), from.Close() }()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			w.bytes.Add(int64(n))
			noted()
			w.pause()
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// resend is how long a lost piece takes: the least time after which Linux sends it again.
const resend = 200 * time.Millisecond

// pause holds a piece up, as long as the wire is to be slow, or until it is closed.
func (w *wire) pause() {
	d := time.Duration(w.delay.Load())
	if lost := w.lost.Load(); lost > 0 && rand.Int64N(1000) < lost { //nolint:gosec // no secret
		d += resend
	}
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closed:
	}
}

var _ io.Closer = (*wire)(nil)
