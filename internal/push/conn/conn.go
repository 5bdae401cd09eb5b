package conn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	links       = 4   // to a host
	fewOnLink   = 100 // requests in flight, before the next link is used, too: as many streams as most peers allow
	maxPerLink  = 4   // connections of a link to a peer with HTTP/1.1, and dials at once
	maxTries    = 8
	maxAlone    = time.Second     // for so long the first request over a link keeps the next waiting
	dialTimeout = 5 * time.Second // and as much again for the handshake of TLS
	silence     = 5 * time.Second
	idleTimeout = 30 * time.Minute
	maxAnswer   = 16 << 10 // bytes that are read of an answer, and of its header
)

var (
	errProxy   = errors.New("the address of the proxy in the environment makes no sense")
	errNotGood = errors.New("the first message over the connection was refused, or had no answer")
)

// Options are for [New].
type Options struct {
	RootCAs *x509.CertPool // nil: the system's
	// Silence is how long a peer may say nothing before it is asked for a sign of life; 0: 5 s.
	Silence time.Duration
	// Count is told of connections that are opened, 1, and closed, -1. Nil: it is not.
	Count func(delta int)
}

// Pool is the connections to some hosts. It is safe for concurrent use.
type Pool struct {
	Options

	mu       sync.Mutex
	alone    time.Duration    // maxAlone
	hosts    map[string]*host // by host:port
	open     map[*counted]struct{}
	inFlight int
	closed   bool // the connections end with the last request
}

// host is forgotten when it is used no more.
type host struct {
	address string
	links   [links]*link
	uses    int // requests in flight, connections, and dials
}

type link struct {
	*http.Transport // it has one connection, if the host speaks HTTP/2

	to       *host
	inFlight int
	conns    int      // that are open
	first    *opening // nil: no request began since a connection was closed
}

// opening is the first request over a link.
type opening struct {
	done chan struct{} // closed at its end, after err was set
	err  *Failure      // why requests that waited are not sent; nil: they may go over the link
}

func (o *opening) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// New returns a pool. It connects when there is something to send, and is to be closed.
func New(o Options) *Pool {
	o.Silence = cmp.Or(o.Silence, silence)
	return &Pool{Options: o, alone: maxAlone, hosts: make(map[string]*host), open: make(map[*counted]struct{})}
}

func (p *Pool) newHost(address string) *host {
	at := &host{address: address}
	for i := range at.links {
		l := &link{to: at}
		l.Transport = &http.Transport{
			Proxy: hushed(http.ProxyFromEnvironment),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return p.dial(ctx, network, address, l)
			},
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.RootCAs},
			TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout, MaxConnsPerHost: maxPerLink, MaxIdleConnsPerHost: maxPerLink,
			ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
			HTTP2: &http.HTTP2Config{SendPingTimeout: p.Silence, PingTimeout: p.Silence, WriteByteTimeout: p.Silence},
		}
		at.links[i] = l
	}
	return at
}

// hushed has errors of a proxy's address not tell the address: it may have a password.
func hushed(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		at, err := proxy(r)
		if err != nil {
			err = errProxy
		}
		return at, err
	}
}

// Answer is the answer of a peer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the beginning of it
	Err    error  // why it may be cut off; the status is known all the same
}

// Post sends a request and returns the peer's answer, or why there is none. It follows no redirects. A request that
// does not leave before a time, unless that is zero, is [Unsent].
func (p *Pool) Post(ctx context.Context, to *url.URL, header http.Header, text []byte, before time.Time) (Answer, *Failure) {
	l := p.take(net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")))
	if l == nil {
		return Answer{}, &Failure{Undialled, net.ErrClosed}
	}
	defer p.put(l)
	first, err := p.begin(ctx, l)
	if err != nil {
		return Answer{}, err
	}
	a, err := l.post(ctx, to, header, &content{text: text, before: before})
	if first != nil {
		p.begun(l, first, a, err)
	}
	return a, err
}

// take chooses a link to a host: the first with few requests, else the link with the fewest. Nil: the pool is closed.
func (p *Pool) take(address string) (to *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	at := p.hosts[address]
	if at == nil {
		at = p.newHost(address)
		p.hosts[address] = at
	}
	to = at.links[0]
	for _, l := range at.links {
		if to.inFlight >= fewOnLink && l.inFlight < to.inFlight {
			to = l
		}
	}
	to.inFlight++
	p.inFlight++
	at.uses++
	return to
}

// put is the end of a request over a link.
func (p *Pool) put(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.inFlight--
	p.inFlight--
	p.unused(l)
	p.end()
}

// unused is the end of a use of a link. It holds mu.
func (p *Pool) unused(l *link) {
	if l.to.uses--; l.to.uses == 0 && p.hosts[l.to.address] == l.to { // a dial may begin after it was forgotten
		delete(p.hosts, l.to.address)
	}
}

// end closes all connections of a closed pool after the last request. It holds mu.
func (p *Pool) end() {
	if p.closed && p.inFlight == 0 {
		for c := range p.open {
			_ = c.Conn.Close() // the transport notices, and closes c
		}
	}
}

// begin returns when a request may go over a link: at once if it is the first request, whose opening begin then returns, else when
// the first request has ended, or has taken too long. If the first got no connection, or no good answer, all that waited are not sent.
func (p *Pool) begin(ctx context.Context, l *link) (first *opening, err *Failure) {
	p.mu.Lock()
	o := l.first
	if o == nil {
		first = &opening{done: make(chan struct{})}
		l.first = first
	}
	p.mu.Unlock()
	if first != nil {
		return first, nil
	}
	select {
	case <-o.done: // nearly always at once
		return nil, o.err
	case <-time.After(p.alone):
		return nil, nil
	case <-ctx.Done():
		return nil, &Failure{Unsent, ctx.Err()}
	}
}

// begun is the end of the first request over a link. If the peer failed or did not take our key, the next request is a first, too:
// Apple would refuse more.
func (p *Pool) begun(l *link, o *opening, a Answer, err *Failure) {
	defer close(o.done)
	switch {
	case err == nil && a.Status < 500 && a.Status != http.StatusUnauthorized && a.Status != http.StatusForbidden:
		return
	case err != nil && err.Fate == Undialled:
		o.err = err
	default:
		o.err = &Failure{Unsent, errNotGood}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.first == o {
		l.first = nil
	}
}

// post sends a request over a link.
func (l *link) post(ctx context.Context, to *url.URL, header http.Header, content *content) (a Answer, failed *Failure) {
	var isDialled atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isDialled.Store(true) }}
	body, _ := content.open() // it never fails
	r := (&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header, ContentLength: int64(len(content.text)), Body: body, GetBody: content.open,
	}).WithContext(httptrace.WithClientTrace(ctx, trace))
	response, err := l.RoundTrip(r)
	if err != nil {
		switch {
		case content.stop():
			return a, &Failure{Unknown, err}
		case !isDialled.Load() && ctx.Err() == nil:
			return a, &Failure{Undialled, err}
		}
		return a, &Failure{Unsent, err}
	}
	a = Answer{Status: response.StatusCode, Header: response.Header}
	a.Body, a.Err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // the status tells its fate
	return a, nil
}

// Close has the connections end with the last request over them. New requests are refused.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.end()
}

// dial opens a connection of a link, without TLS.
func (p *Pool) dial(ctx context.Context, network, address string, l *link) (net.Conn, error) {
	p.mu.Lock()
	l.to.uses++
	p.mu.Unlock()
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed && p.inFlight == 0 { // else a request may wait for it
		_ = raw.Close()
		err = net.ErrClosed
	}
	if err != nil {
		p.unused(l)
		return nil, err
	}
	c := &counted{Conn: raw, pool: p, link: l}
	p.open[c] = struct{}{}
	l.conns++
	if p.Count != nil {
		p.Count(1)
	}
	return c, nil
}

// counted is a connection. When the last connection of a link is closed, the next request over the link is a first again.
type counted struct {
	net.Conn

	pool *Pool
	link *link
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isOpen := p.open[c]; isOpen {
		delete(p.open, c)
		l := c.link
		if l.conns--; l.conns == 0 && l.first != nil && l.first.isDone() { // else it may go over another connection
			l.first = nil
		}
		p.unused(l)
		if p.Count != nil {
			p.Count(-1)
		}
	}
	return c.Conn.Close()
}

// content is the body of a request. The library opens it again for each further attempt, which it makes if no peer processed the
// request before: with a peer that closes each connection it would go on for ever.
type content struct {
	text   []byte
	before time.Time // it is not to leave later; zero: it may
	tries  int
	last   *body
}

func (c *content) open() (io.ReadCloser, error) {
	if c.tries++; c.tries > maxTries {
		return nil, errors.New("no connection processes the request")
	}
	c.last = &body{Reader: *bytes.NewReader(c.text), before: c.before}
	return c.last, nil
}

// stop reports whether a peer may have the request: whether the last attempt read anything. If it did not, it will not.
func (c *content) stop() (isRead bool) {
	return c.tries <= maxTries && !c.last.state.CompareAndSwap(0, stopped)
}

// body is the body of an attempt, which is not empty.
type body struct {
	bytes.Reader

	before time.Time
	state  atomic.Int32
}

const (
	read    = 1
	stopped = 2
)

// Read implements [io.Reader].
func (b *body) Read(to []byte) (int, error) {
	if !b.before.IsZero() && time.Now().After(b.before) && b.state.Load() != read {
		return 0, errors.New("the request was not sent in time")
	}
	if !b.state.CompareAndSwap(0, read) && b.state.Load() != read {
		return 0, errors.New("the request was given up")
	}
	return b.Reader.Read(to)
}

// Close implements [io.Closer]. It changes nothing: the library closes bodies early, too.
func (*body) Close() error { return nil }
