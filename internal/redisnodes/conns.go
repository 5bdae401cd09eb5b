package redisnodes

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// connections are those of a node: to one server, until it is found that the address leads to
// another one.
type connections struct {
	// made counts them. What is known of the node's data, such as that it is the data that was
	// there before, is known up to a number of them: only over a new connection can another
	// server answer, or the same one after a restart.
	made atomic.Int64

	connsMu sync.Mutex // guards what follows
	open    map[*connection]struct{}
	closed  int    // how often all were closed
	remote  string // where the last one leads to
	// same are addresses that lead to the server whose run is known, as those of several proxies
	// do. While remote is none of them, all that are open lead to remote.
	same map[string]bool
}

// connection is one that is open, or being made.
type connection struct{ end func() }

// closeConnections closes all connections, and those that are being made. What waits for a reply
// over one of them fails.
func (c *connections) closeConnections() {
	c.connsMu.Lock()
	defer c.connsMu.Unlock()
	c.closeAll()
}

// closeAll does so where the caller holds connsMu.
func (c *connections) closeAll() {
	c.closed++
	for one := range c.open {
		one.end()
	}
}

// hang notes that the node did not answer a probe. It closes its connections, so that
// calls under way, which may be for the data of other nodes as well, end now, and not
// after their own timeouts.
//
// What was sent by then the node may still do when it goes on, as after any timeout, however
// late. So what is sent must bear that.
func (n *Node) hang() {
	n.see(func(s *seen) { s.silent = time.Unix(1<<40, 0) }) // until a probe is answered
	n.closeConnections()
}

// dialHook counts and tracks the connections to a node.
type dialHook struct {
	passing
	*Node

	probes bool // it may connect to a node that is silent
}

// passing is a hook that changes nothing.
type passing struct{}

// DialHook implements [redis.Hook].
func (passing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// DialHook implements [redis.Hook].
func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		for {
			if conn, err := h.dial(ctx, next, network, addr); !errors.Is(err, errClosed) {
				return conn, err
			}
		}
	}
}

// errClosed is the error of a connection while which was made all were closed.
var errClosed = errors.New("closed while it was made")

// dial makes a connection. To a node that is silent only probes make one: a connection is either
// closed by hang, or begun after it and refused.
func (h dialHook) dial(ctx context.Context, next redis.DialHook, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one := &connection{cancel}
	h.connsMu.Lock()
	if !h.probes && h.isSilent() {
		h.connsMu.Unlock()
		return nil, errSilent
	}
	h.open[one] = struct{}{}
	closed := h.closed
	h.connsMu.Unlock()
	conn, err := next(ctx, network, addr)
	h.connsMu.Lock()
	defer h.connsMu.Unlock()
	if closed != h.closed {
		delete(h.open, one)
		if err == nil {
			_ = conn.Close() // nothing was sent over it
		}
		return nil, errClosed
	}
	if err != nil {
		delete(h.open, one)
		return nil, err
	}
	h.leadsTo(conn.RemoteAddr().String(), one)
	one.end = func() { _ = conn.Close() } // its user sees it
	h.made.Add(1)
	kept := keptConn{conn, h.Node, one}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis asks it whether the other end has closed it
		return rawConn{kept, raw}, nil
	}
	return kept, nil
}

// leadsTo takes note of where a connection leads to. If a name, or a Sentinel, leads to another
// server now, or may do so, the connections to the former one are closed, and those that were begun
// before are begun again. Nor is a reply believed to what was sent by then: it may be of that server
// even if the next connection leads back, and the former run is found. The caller holds connsMu.
func (n *Node) leadsTo(remote string, one *connection) {
	if n.nodes.cluster == nil && n.remote != "" && n.remote != remote && (!n.same[n.remote] || !n.same[remote]) {
		delete(n.open, one)
		n.closeAll()
		n.open[one] = struct{}{}
		n.see(func(s *seen) {
			if s.known != nil {
				k := *s.known
				k.since, s.known = &k, &k
			}
		})
	}
	n.remote = remote
}

// keptConn is a connection to a node.
type keptConn struct {
	net.Conn

	node *Node
	one  *connection
}

// Close implements [net.Conn].
func (c keptConn) Close() error {
	c.node.connsMu.Lock()
	delete(c.node.open, c.one)
	c.node.connsMu.Unlock()
	return c.Conn.Close()
}

// rawConn is a keptConn that is a [syscall.Conn].
type rawConn struct {
	keptConn
	syscall.Conn
}

// isSilent reports whether calls to the node fail at once, as it did not answer a moment ago.
func (n *Node) isSilent() bool {
	silent := n.seen.Load().silent
	return !silent.IsZero() && n.nodes.now().Before(silent)
}

// noteAnswer takes note of how a call ended. Only a node that does not answer in time is
// silent: that a connection is refused is found out at no cost. A call that had less time
// than others says nothing about the node. The probes of Watch know better.
func (n *Node) noteAnswer(ctx context.Context, err error) {
	if errors.Is(err, redis.ErrPoolTimeout) {
		return
	}
	deadline, hurried := ctx.Deadline()
	hurried = hurried && !time.Now().Before(deadline) || ctx.Err() != nil
	switch late := isTimeout(err); {
	case late && !hurried:
		n.see(func(s *seen) { s.silent = n.nodes.now().Add(silentFor) })
	case !late && !n.seen.Load().silent.IsZero():
		n.see(func(s *seen) { s.silent = time.Time{} })
	}
}
