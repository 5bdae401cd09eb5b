package apns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// maxConns is how many connections there are to a host, at most. One carries 1000 requests
// at once, as APNs answers its SETTINGS.
const maxConns = 4

// growAfter is how long all streams must have been in use before another connection is
// opened. coldAfter is the same while a connection has not answered its first request.
const (
	growAfter = time.Second
	coldAfter = 5 * time.Second
)

// errClosed is of messages that were waiting for a connection when the sender was closed.
var errClosed = errors.New("apns: the sender is closed")

// dialError is of a connection that could not be opened.
type dialError struct{ err error }

func (e *dialError) Error() string { return fmt.Sprintf("apns: connect: %v", e.err) }

func (e *dialError) Unwrap() error { return e.err }

// pool keeps the connections to a host. Requests fill one after the other; those that find
// no free stream wait in order.
//
// A connection carries one request until that is answered: its limit of streams is not
// known before, and APNs takes only one until it has checked a token.
//
// Streams are counted here, and not by [http.ClientConn.Reserve]: when the limit falls below
// what is reserved, each request that has a reservation waits for all others to end, for
// ever. Without one, a request waits for its turn at worst.
//
// The state hook of a connection may run inside any call of its methods, and so does not
// lock mu.
type pool struct {
	transport *http.Transport
	address   string
	key       func() *signer
	log       *slog.Logger
	ctx       context.Context // ends when the pool is closed
	cancel    context.CancelFunc
	growAfter time.Duration

	waiting atomic.Int32 // len(waiters)
	kicked  atomic.Bool  // a dispatch is to begin

	mu      sync.Mutex
	conns   []*conn // that take requests
	retired []*conn // that take none, and have some in flight
	dialing bool
	waiters []*waiter
	full    time.Time   // since when there are waiters, or the last connection was added or warm
	timer   *time.Timer // the next look at whether to grow
}

// conn is a connection and the key whose tokens go over it.
type conn struct {
	*http.ClientConn

	key    *signer
	warm   bool // it has answered a request
	active int  // requests that have it
	opened time.Time
}

// waiter is a request that waits for a connection.
type waiter struct {
	got chan struct{} // closed when one of these is set
	c   *conn
	err error
}

func newPool(transport *http.Transport, address string, key func() *signer, growAfter time.Duration, log *slog.Logger) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &pool{
		transport: transport, address: address, key: key, log: log,
		ctx: ctx, cancel: cancel, growAfter: growAfter,
	}
}

// acquire returns a connection with a free stream. The caller calls done when it has used it.
func (p *pool) acquire(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return nil, errClosed
	}
	if len(p.waiters) == 0 {
		if c := p.reserve(); c != nil {
			p.mu.Unlock()
			return c, nil
		}
		p.full = time.Now()
	}
	w := &waiter{got: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.waiting.Add(1)
	//nolint:contextcheck // a connection outlives the message
	p.match() // a stream that became free before waiting was raised told no one
	p.mu.Unlock()

	select {
	case <-w.got:
		return w.c, w.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
		p.waiting.Add(-1)
		return nil, ctx.Err()
	}
	return w.c, w.err // it was given one at the same moment
}

// done ends the use of a connection. answered: by a response of whichever status.
func (p *pool) done(c *conn, answered bool) {
	p.mu.Lock()
	c.active--
	if answered && !c.warm {
		c.warm, p.full = true, time.Now()
	}
	p.closeIdle(c)
	p.mu.Unlock()
	p.kick()
}

// retire makes new requests go over new connections.
func (p *pool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		p.drop(c)
	}
}

// remove makes new requests go over other connections.
func (p *pool) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(c)
}

// drop moves c to the retired ones. It holds mu.
func (p *pool) drop(c *conn) {
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.retired = append(p.retired, c)
		p.closeIdle(c)
	}
}

// closeIdle closes c if it is retired and has nothing in flight. It holds mu.
func (p *pool) closeIdle(c *conn) {
	if i := slices.Index(p.retired, c); i >= 0 && c.active == 0 {
		p.retired = slices.Delete(p.retired, i, i+1)
		countConnections(-1)
		go func() { _ = c.Close() }() // it may wait for the peer
	}
}

// countConnections counts those of all pools.
var countConnections = push.CountConnections(push.APNs)

// close closes all connections and ends what waits for one.
func (p *pool) close() {
	p.cancel()
	p.mu.Lock()
	conns := append(slices.Clone(p.conns), p.retired...)
	p.conns, p.retired = nil, nil
	p.fail(errClosed)
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range conns {
		countConnections(-1)
		_ = c.Close()
	}
}

// fail ends all waiters. It holds mu.
func (p *pool) fail(err error) {
	for _, w := range p.waiters {
		w.err = err
		close(w.got)
	}
	p.waiters = nil
	p.waiting.Store(0)
}

// kick has the waiters looked after. It is called by the state hooks, with any locks held.
func (p *pool) kick() {
	if p.waiting.Load() == 0 || p.kicked.Swap(true) {
		return
	}
	go func() {
		p.kicked.Store(false) // before it looks: what changes from now on needs another look
		p.mu.Lock()
		defer p.mu.Unlock()
		p.match()
	}()
}

// match gives free streams to the waiters, and opens a connection if it must. It holds mu.
func (p *pool) match() {
	n := 0
	for ; n < len(p.waiters); n++ {
		c := p.reserve()
		if c == nil {
			break
		}
		p.waiters[n].c = c
		close(p.waiters[n].got)
	}
	clear(p.waiters[:n])
	p.waiters = p.waiters[n:]
	p.waiting.Add(int32(-n))
	if len(p.waiters) == 0 {
		return
	}
	// Look again when it may be time to grow.
	wait := p.grow()
	for _, c := range p.conns {
		if c.InFlight() > c.active {
			// A stream ends some time after its request, and the hook that tells so is not
			// called if another stream began and ended during a call of it.
			wait = min(wait, lingering)
		}
	}
	switch {
	case wait == never:
	case p.timer == nil:
		p.timer = time.AfterFunc(wait, p.kick)
	default:
		p.timer.Reset(wait)
	}
}

const (
	lingering = time.Millisecond
	never     = time.Duration(math.MaxInt64)
)

// reserve returns a connection with a free stream, nil if there is none. It holds mu.
func (p *pool) reserve() *conn {
	for i := 0; i < len(p.conns); i++ {
		c := p.conns[i]
		if !c.warm && c.active > 0 {
			continue
		}
		inFlight := c.InFlight() // streams, some of which may be done already
		available := c.Available()
		switch {
		// One that is closed goes, and so does one that has nothing in flight and takes
		// nothing: it was told to go away, or it was idle for too long.
		case c.Err() != nil, available == 0 && c.active == 0 && inFlight == 0:
			p.drop(c)
			i--
		case available > max(0, c.active-inFlight): // those that have no stream yet
			c.active++
			return c
		}
	}
	return nil
}

// grow opens a connection if there is none, or if those that there are have been full for
// long enough. It returns in how long that may be. It holds mu.
func (p *pool) grow() time.Duration {
	if p.dialing || len(p.conns) >= maxConns {
		return never
	}
	if len(p.conns) > 0 {
		at := p.full.Add(p.growAfter)
		for _, c := range p.conns {
			if !c.warm && c.opened.Add(coldAfter).After(at) {
				at = c.opened.Add(coldAfter)
			}
		}
		if left := time.Until(at); left > 0 {
			return left
		}
	}
	p.dialing = true
	go p.dial()
	return never
}

// dial opens a connection.
func (p *pool) dial() {
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	key := p.key()
	opened, err := p.transport.NewClientConn(ctx, "https", p.address)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	p.full = time.Now()
	switch {
	case p.ctx.Err() != nil:
		if err == nil {
			go func() { _ = opened.Close() }()
		}
		p.fail(errClosed)
	case err != nil:
		p.log.Warn("apns: connecting failed", "address", p.address, "error", err)
		if len(p.conns) == 0 {
			p.fail(&dialError{err})
		}
	case key != p.key(): // it was replaced in the meantime
		go func() { _ = opened.Close() }()
		p.match()
	default:
		p.log.Debug("apns: connected", "address", p.address)
		countConnections(1)
		p.conns = append(p.conns, &conn{ClientConn: opened, key: key, opened: p.full})
		opened.SetStateHook(func(*http.ClientConn) { p.kick() })
		p.match()
	}
}
