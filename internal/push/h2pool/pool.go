// Package h2pool keeps the few connections over which a push service is sent to, and says
// of a request without an answer whether the push service may have taken it.
//
// Unlike a [http.Transport] it tells when it waits, opens a second connection only if the
// first was full for a while, and sends nothing again that may have been sent.
package h2pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// coldAfter is [Options.GrowAfter] while a connection has not answered its first request.
const coldAfter = 5 * time.Second

// ErrClosed is of requests that were waiting for a connection when the pool was closed.
var ErrClosed = errors.New("the connections are closed")

// DialError is of a connection that could not be opened.
type DialError struct{ Err error }

// Error implements error.
func (e *DialError) Error() string { return fmt.Sprintf("connect: %v", e.Err) }

// Unwrap returns why.
func (e *DialError) Unwrap() error { return e.Err }

// Options are for [New].
type Options struct {
	Transport   *http.Transport // opens the connections
	Address     string          // host:port
	MaxConns    int
	GrowAfter   time.Duration // how long all streams must have been in use before another connection is opened
	DialTimeout time.Duration // with the TLS handshake
	// Tag is what a new connection has as its Tag, such as the key whose tokens go over it.
	// One that changed while it was opened is not used. Nil: there is none.
	Tag func() any
	// OnDialError is told why a connection could not be opened, before the requests that
	// wait for it are. Nil: no one.
	OnDialError func(error)
	// Count is told of connections that are opened, 1, and closed, -1. It must not block. Nil: no one.
	Count func(delta int)
}

// Pool keeps the connections to a host, which are few: requests fill one after the other,
// and those that find no free stream wait in order. It is safe for concurrent use.
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
type Pool struct {
	Options

	ctx    context.Context // ends when the pool is closed
	cancel context.CancelFunc

	waiting    atomic.Int32   // len(waiters)
	kicked     atomic.Bool    // a dispatch is to begin
	background sync.WaitGroup // connections that are being opened or closed

	mu      sync.Mutex
	conns   []*Conn // that take requests
	retired []*Conn // that take none, and have some in flight
	dialing bool
	waiters []*waiter
	full    time.Time   // since when there are waiters, or the last connection was added or warm
	timer   *time.Timer // the next look at whether to grow
}

// Conn is a connection.
type Conn struct {
	*http.ClientConn

	Tag    any  // of [Options.Tag]
	warm   bool // it has answered a request
	active int  // requests that have it
	opened time.Time
}

// waiter is a request that waits for a connection.
type waiter struct {
	got chan struct{} // closed when one of these is set
	c   *Conn
	err error
}

// New returns a pool, which connects when there is something to send. It is to be closed.
func New(o Options) *Pool {
	if o.Tag == nil {
		o.Tag = func() any { return nil }
	}
	if o.OnDialError == nil {
		o.OnDialError = func(error) {}
	}
	if o.Count == nil {
		o.Count = func(int) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{Options: o, ctx: ctx, cancel: cancel}
}

// acquire returns a connection with a free stream. The caller calls done when it has used
// it.
func (p *Pool) acquire(ctx context.Context) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return nil, ErrClosed
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
func (p *Pool) done(c *Conn, answered bool) {
	p.mu.Lock()
	c.active--
	if answered && !c.warm {
		c.warm, p.full = true, time.Now()
	}
	p.closeIdle(c)
	p.mu.Unlock()
	p.kick()
}

// Waiting returns how many requests wait for a connection.
func (p *Pool) Waiting() int { return int(p.waiting.Load()) }

// Retire makes new requests go over new connections.
func (p *Pool) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		p.drop(c)
	}
}

// Remove makes new requests go over other connections than c.
func (p *Pool) Remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(c)
}

// drop moves c to the retired ones. It holds mu.
func (p *Pool) drop(c *Conn) {
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.retired = append(p.retired, c)
		p.closeIdle(c)
	}
}

// closeIdle closes c if it is retired and has nothing in flight. It holds mu.
func (p *Pool) closeIdle(c *Conn) {
	if i := slices.Index(p.retired, c); i >= 0 && c.active == 0 {
		p.retired = slices.Delete(p.retired, i, i+1)
		p.Count(-1)
		p.closeConn(c.ClientConn)
	}
}

// closeConn closes a connection, which may wait for the peer.
func (p *Pool) closeConn(c *http.ClientConn) {
	p.background.Go(func() { _ = c.Close() })
}

// Close closes all connections and ends what waits for one.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	conns := append(slices.Clone(p.conns), p.retired...)
	p.conns, p.retired = nil, nil
	p.fail(ErrClosed)
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range conns {
		p.Count(-1)
		p.closeConn(c.ClientConn)
	}
	p.background.Wait()
}

// fail ends all waiters. It holds mu.
func (p *Pool) fail(err error) {
	for _, w := range p.waiters {
		w.err = err
		close(w.got)
	}
	p.waiters = nil
	p.waiting.Store(0)
}

// kick has the waiters looked after. It is called by the state hooks, with any locks held.
func (p *Pool) kick() {
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
func (p *Pool) match() {
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
func (p *Pool) reserve() *Conn {
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
func (p *Pool) grow() time.Duration {
	if p.dialing || len(p.conns) >= p.MaxConns {
		return never
	}
	if len(p.conns) > 0 {
		at := p.full.Add(p.GrowAfter)
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
	p.background.Go(p.dial)
	return never
}

// dial opens a connection.
func (p *Pool) dial() {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	tag := p.Tag()
	opened, err := p.Transport.NewClientConn(ctx, "https", p.Address)
	if err != nil && p.ctx.Err() == nil {
		p.OnDialError(err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	p.full = time.Now()
	switch {
	case p.ctx.Err() != nil:
		if err == nil {
			p.closeConn(opened)
		}
		p.fail(ErrClosed)
	case err != nil:
		if len(p.conns) == 0 {
			p.fail(&DialError{err})
		}
	case tag != p.Tag(): // it was replaced in the meantime
		p.closeConn(opened)
		p.match()
	default:
		p.Count(1)
		p.conns = append(p.conns, &Conn{ClientConn: opened, Tag: tag, opened: p.full})
		opened.SetStateHook(func(*http.ClientConn) { p.kick() })
		p.match()
	}
}
