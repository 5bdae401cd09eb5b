package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// wire is a line to a server that counts what goes over it, whatever the
// protocol: how often it was turned round, from asking to answering, and how many
// bytes went either way. It is for counting, not for timing.
type wire struct {
	dir, server string
	listener    net.Listener
	trips       atomic.Int64
	bytes       atomic.Int64
	running     sync.WaitGroup
	mu          sync.Mutex
	conns       []net.Conn
}

// newWire leads to the server behind a unix socket. The caller closes it.
func newWire(ctx context.Context, server string) (*wire, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	w := &wire{dir: dir, server: server}
	var config net.ListenConfig
	if w.listener, err = config.Listen(ctx, "unix", w.addr()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.running.Go(w.accept)
	return w, nil
}

func (w *wire) addr() string { return filepath.Join(w.dir, "sock") }

// Close cuts all connections and waits for the goroutines.
func (w *wire) Close() error {
	err := w.listener.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
	return errors.Join(err, os.RemoveAll(w.dir))
}

// accept leads connections on until the listener is closed.
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
		var asking atomic.Bool
		w.running.Go(func() { w.carry(server, client, func() { asking.Store(true) }) })
		w.running.Go(func() {
			w.carry(client, server, func() {
				if asking.CompareAndSwap(true, false) { // the first of the answer
					w.trips.Add(1)
				}
			})
		})
	}
}

// carry copies from one end to the other until either is closed. It tells noted of
// each piece before it is passed on.
func (w *wire) carry(to, from net.Conn, noted func()) {
	defer func() { _, _ = to.Close(), from.Close() }()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			w.bytes.Add(int64(n))
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

var _ io.Closer = (*wire)(nil)
