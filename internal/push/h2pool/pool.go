// Package h2pool is a client of HTTP/2 for push services: small requests, many at once, over
// few connections. It writes frames itself, and so it knows of each request that
// got no answer whether anything of it was written and what the peer said of it. What may have been
// processed is not sent again; what was not, as a connection that is closed by GOAWAY may carry
// hundreds of requests, goes over the next one.
//
//   - pool.go has the requests that wait, and opens connections when they must.
//   - state.go is what is known of a connection, and all decisions about it, without a network.
//   - conn.go carries frames between the two: one goroutine writes and one reads, whatever the
//     number of requests.
//   - dial.go opens a connection, if need be by a proxy; http1.go is for peers without HTTP/2.
package h2pool

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// coldAfter is [Options.GrowAfter] while a connection has not answered its first request.
const coldAfter = 5 * time.Second

// Options are for [New].
type Options struct {
	Address string // host:port
	// TLS has the roots, and what a connection must fulfil. It is not changed.
	TLS *tls.Config
	// HTTP1 is for peers that may not speak HTTP/2. Without it, the handshake fails with those.
	HTTP1 bool
	// Dial opens a connection without TLS. Nil: as [net.Dialer] does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy returns the proxy for a request, as [http.ProxyFromEnvironment] does. Nil: there is none.
	Proxy func(*http.Request) (*url.URL, error)

	MaxConns    int
	GrowAfter   time.Duration // how long requests must have waited before another connection is opened
	DialTimeout time.Duration // with the TLS handshake
	// Silence is after what time without a word the peer is asked for a sign of life by PING; after
	// as much again the connection is lost. 0: 5 s.
	Silence     time.Duration
	IdleTimeout time.Duration // after which a connection is closed that carried nothing; 0: 5 min

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
type Pool struct {
	Options

	host, authority string

	ctx        context.Context // ends when the pool is closed
	cancel     context.CancelFunc
	background sync.WaitGroup // connections

	mu      sync.Mutex // also for the states of connections and calls
	queue   []*call    // that wait, in order
	conns   []*Conn    // that take requests
	retired []*Conn    // that take none any more
	dialing bool
	since   time.Time // since when the queue is not empty, or the last connection was added or warm
	timer   *time.Timer
	lookAt  time.Time // when it will run; zero: it will not
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
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.Silence = cmp.Or(o.Silence, 5*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 5*time.Minute)
	p := &Pool{Options: o, authority: strings.TrimSuffix(o.Address, ":443")}
	p.host, _, _ = net.SplitHostPort(o.Address) // else it cannot be dialled
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.timer = time.AfterFunc(time.Hour, p.look)
	p.timer.Stop()
	return p
}

// Send posts a request and returns what the peer answered. It waits for a connection, and for the
// answer. Its error is an [*Error], which says what is known. What the peer may have processed is
// not sent again.
func (p *Pool) Send(ctx context.Context, r Request) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, &Error{NotWritten, err}
	}
	one := &call{Request: r, ctx: ctx, done: dones.Get().(chan struct{})}
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return Answer{}, &Error{NotWritten, ErrClosed}
	}
	p.wait([]*call{one}, false)
	p.schedule()
	p.mu.Unlock()
	select {
	case <-one.done:
	case <-ctx.Done():
		p.giveUp(one, ctx.Err())
		<-one.done
	}
	dones.Put(one.done)
	if one.err != nil {
		return Answer{}, one.err
	}
	return one.answer, nil
}

// wait puts calls behind those that wait, or before them if they waited before. It holds mu.
func (p *Pool) wait(calls []*call, before bool) {
	if len(p.queue) == 0 {
		p.since = time.Now()
	}
	if before {
		p.queue = append(calls, p.queue...)
	} else {
		p.queue = append(p.queue, calls...)
	}
}

// next returns the call that has waited longest, for a connection, or nil, and appends its header. It
// ends those for which there is none. It holds mu.
func (p *Pool) next(c *Conn, fields []Field) (*call, []Field) {
	for len(p.queue) > 0 {
		one := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		all, err := p.header(c, one, fields)
		if err == nil {
			one.conn, one.answer.Conn = c, c
			return one, all
		}
		one.finish(&Error{NotWritten, err})
	}
	return nil, fields
}

// header appends the header of a call.
func (p *Pool) header(c *Conn, one *call, fields []Field) ([]Field, error) {
	all, err := one.Header(c.Tag, append(fields,
		Field{Name: ":method", Value: "POST"}, Field{Name: ":scheme", Value: "https"},
		Field{Name: ":authority", Value: p.authority}, Field{Name: ":path", Value: one.Path, Sensitive: true},
		Field{Name: "content-length", Value: strconv.Itoa(len(one.Body)), Sensitive: true},
	))
	size := uint32(0)
	for _, f := range all[min(len(fields), len(all)):] {
		size += f.Size()
	}
	if err == nil && size > c.maxHeader {
		err = fmt.Errorf("the header has %d bytes, and the peer takes %d", size, c.maxHeader)
	}
	return all, err
}

// giveUp ends a call whose time is over. A connection of HTTP/1.1 sees to that itself.
func (p *Pool) giveUp(one *call, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := one.conn; c != nil {
		if c.h1 == nil {
			c.cancel(one, http2.ErrCodeCancel, err)
			p.after(c)
		}
		return
	}
	if i := slices.Index(p.queue, one); i >= 0 { // else it was done at the same moment
		p.queue = slices.Delete(p.queue, i, i+1)
		one.finish(&Error{NotWritten, err})
	}
}

// Waiting returns how many requests wait for a connection.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// Retire makes new requests go over new connections. What is in flight is finished.
func (p *Pool) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		c.gone = true
		p.after(c)
	}
}

// Remove makes new requests go over other connections than c.
func (p *Pool) Remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.gone = true
	p.after(c)
}

// Close closes all connections and ends what waits for one. What is in flight has an error, and may
// be processed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.cancel()
	for _, c := range slices.Concat(p.conns, p.retired) {
		if c.h1 == nil { // else its request ends by ctx
			c.end(ErrClosed)
			_ = c.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
		}
		c.gone = true
		p.after(c)
	}
	p.fail(ErrClosed)
	p.timer.Stop()
	p.mu.Unlock()
	p.background.Wait()
}

// fail ends all that wait. It holds mu.
func (p *Pool) fail(err error) {
	for _, one := range p.queue {
		one.finish(&Error{NotWritten, err})
	}
	p.queue = nil
}

// after does what a change of a connection's state asks for. It holds mu.
func (p *Pool) after(c *Conn) {
	if len(c.again) > 0 {
		p.wait(c.again, true)
		c.again = nil
	}
	if p.ctx.Err() != nil {
		p.fail(ErrClosed)
	}
	switch {
	case !c.isIdle():
		c.idle = time.Time{}
	case c.idle.IsZero():
		c.idle = time.Now()
	case time.Since(c.idle) > p.IdleTimeout:
		c.gone = true
	}
	if i := slices.Index(p.conns, c); c.gone && i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.retired = append(p.retired, c)
	}
	if c.warm && !c.wasWarm {
		c.wasWarm, p.since = true, time.Now()
	}
	if c.gone && c.isIdle() {
		c.closing = true
		if c.broken {
			_ = c.nc.NetConn().Close() // no one says goodbye
		}
	}
	if c.closing || c.pendingOutput() {
		c.poke()
	}
	p.schedule()
}

// look has the queue looked at, when it may be time to grow.
func (p *Pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAt = time.Time{}
	p.schedule()
}

// schedule wakes a connection with a free stream if a request waits, and opens one if it must. It
// holds mu.
func (p *Pool) schedule() {
	if len(p.queue) == 0 || p.ctx.Err() != nil {
		return
	}
	for _, c := range p.conns {
		if c.free() > 0 {
			c.poke()
			return
		}
	}
	if p.dialing || len(p.conns) >= p.MaxConns {
		return
	}
	if len(p.conns) > 0 {
		at := p.since.Add(p.GrowAfter)
		for _, c := range p.conns {
			if !c.warm && c.opened.Add(coldAfter).After(at) {
				at = c.opened.Add(coldAfter)
			}
		}
		if left := time.Until(at); left > 0 {
			if p.lookAt.IsZero() || at.Before(p.lookAt) {
				p.lookAt = at
				p.timer.Reset(left)
			}
			return
		}
	}
	p.dialing = true
	p.background.Go(p.dial)
}

// dial opens a connection, and carries requests until it ends.
func (p *Pool) dial() {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	c := &Conn{p: p, Tag: p.Tag(), state: newState(), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.next = func(fields []Field) (*call, []Field) { return p.next(c, fields) }
	var err error
	if c.nc, err = p.connect(ctx); err == nil && c.nc.ConnectionState().NegotiatedProtocol != "h2" {
		if err = c.serve1(ctx); err != nil {
			_ = c.nc.Close()
		}
	}
	if err != nil && p.ctx.Err() == nil {
		p.OnDialError(err)
	}

	stale := p.dialled(c, err)
	switch {
	case err != nil:
		return
	case stale:
		_ = c.nc.Close()
		return
	case c.h1 != nil:
		c.run1()
	default:
		c.run()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(o *Conn) bool { return o == c })
	p.retired = slices.DeleteFunc(p.retired, func(o *Conn) bool { return o == c })
	p.Count(-1)
	p.schedule()
}

// dialled takes a connection that was opened, or not. stale: it was replaced, or is late.
func (p *Pool) dialled(c *Conn, err error) (stale bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	p.since = time.Now()
	c.opened = p.since
	stale = err == nil && (p.ctx.Err() != nil || c.Tag != p.Tag())
	switch {
	case err != nil:
		if len(p.conns) == 0 {
			p.fail(&DialError{err})
		}
	case !stale:
		p.Count(1)
		p.conns = append(p.conns, c)
	}
	p.schedule()
	return stale
}
