package conn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	links     = 4   // to a host
	fewOnLink = 100 // requests in flight, before the next link is used, too: as many streams as most peers allow
	// maxPerLink bounds the connections of a link to a peer with HTTP/1.1, and the dials at once.
	maxPerLink  = 4
	maxTries    = 8
	maxAlone    = time.Second     // for so long the first request over a link keeps the next waiting
	dialTimeout = 5 * time.Second // and as much again for the handshake of TLS
	silence     = 5 * time.Second
	idleTimeout = 30 * time.Minute
	maxAnswer   = 16 << 10 // bytes that are read of an answer, and of its header
)

// Options are for [New].
type Options struct {
	RootCAs *x509.CertPool // nil: the system's
	// Silence is how long a peer may say nothing before it is asked for a sign of life; 0: 5 s.
	Silence time.Duration
	// Unreachable is told why a host cannot be reached, once for all requests that wait for the connection. Nil: it is not.
	Unreachable func(host string, err error)
	// Count is told of connections that are opened, 1, and closed, -1. Nil: it is not.
	Count func(delta int)
}

// Pool is the connections to some hosts. It is safe for concurrent use.
type Pool struct {
	Options

	transports [links]*http.Transport // each has one connection to a host that speaks HTTP/2

	mu       sync.Mutex
	alone    time.Duration   // maxAlone
	links    map[place]*link // with requests in flight, or connections
	open     map[*counted]struct{}
	inFlight int
	closed   bool // the connections end with the last request
}

// place is a link to a host: host:port.
type place struct {
	address string
	number  int
}

type link struct {
	inFlight int
	conns    int      // that are open
	first    *opening // nil: no request began since a connection was closed
}

// opening is the first request over a link.
type opening struct {
	done chan struct{} // closed at its end, after err was set
	err  error         // why requests that waited are not sent; nil: they may go over the link
}

// New returns a pool. It connects when there is something to send, and is to be closed.
func New(o Options) *Pool {
	o.Silence = cmp.Or(o.Silence, silence)
	p := &Pool{Options: o, alone: maxAlone, links: make(map[place]*link), open: make(map[*counted]struct{})}
	for i := range p.transports {
		p.transports[i] = &http.Transport{
			Proxy: hushed(http.ProxyFromEnvironment),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return p.dial(ctx, network, address, i)
			},
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
			TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout, MaxConnsPerHost: maxPerLink, MaxIdleConnsPerHost: maxPerLink,
			ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
			HTTP2: &http.HTTP2Config{SendPingTimeout: o.Silence, PingTimeout: o.Silence, WriteByteTimeout: o.Silence},
		}
	}
	return p
}

var errProxy = errors.New("the address of the proxy in the environment makes no sense")

// hushed has errors of a proxy's address not tell the address: it may have a password.
func hushed(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		at, err := proxy(r)
		if err != nil {
			return nil, errProxy
		}
		return at, nil
	}
}

// Answer is the answer of a peer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the beginning of it
	Err    error  // why it may be cut off; the status is known all the same
}

// Post sends a request and returns the peer's answer. It follows no redirects. Its error is an [*Error]. A request that
// does not leave before a time, unless that is zero, is [Unsent].
func (p *Pool) Post(ctx context.Context, to *url.URL, header http.Header, text []byte, before time.Time) (Answer, error) {
	at, isOpen := p.take(net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")))
	if !isOpen {
		return Answer{}, &Error{Undialled, errClosed}
	}
	defer p.put(at)
	first, err := p.begin(ctx, at)
	if err != nil {
		return Answer{}, err
	}
	a, err := p.post(ctx, to, header, &content{text: text, before: before}, at.number)
	if first != nil {
		p.begun(at, first, a, err)
	}
	return a, err
}

// take chooses a link to a host, unless the pool is closed: the first with few requests, else that with the fewest.
func (p *Pool) take(address string) (to place, isOpen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return to, false
	}
	to.address = address
	for k, least := 0, math.MaxInt; k < links && least >= fewOnLink; k++ {
		n := 0
		if l := p.links[place{address, k}]; l != nil {
			n = l.inFlight
		}
		if n < least {
			to.number, least = k, n
		}
	}
	if p.links[to] == nil {
		p.links[to] = &link{}
	}
	p.links[to].inFlight++
	p.inFlight++
	return to, true
}

// put is the end of a request over a link.
func (p *Pool) put(at place) {
	p.mu.Lock()
	p.links[at].inFlight--
	p.inFlight--
	p.forget(at)
	p.end()
}

// forget forgets a link without requests and connections. It holds mu.
func (p *Pool) forget(at place) {
	if l := p.links[at]; l != nil && l.inFlight == 0 && l.conns == 0 {
		delete(p.links, at)
	}
}

// end closes all connections of a closed pool after the last request. It gives up mu.
func (p *Pool) end() {
	var all []*counted
	if p.closed && p.inFlight == 0 {
		all = slices.Collect(maps.Keys(p.open))
	}
	p.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // the transport notices
	}
}

// begin returns when a request may go over a link: at once if it is the first request, whose opening begin then returns, else when
// the first request has ended, or has taken too long. If the first got no connection, or no good answer, all that waited are not sent.
func (p *Pool) begin(ctx context.Context, at place) (first *opening, err error) {
	p.mu.Lock()
	o := p.links[at].first
	if o == nil {
		first = &opening{done: make(chan struct{})}
		p.links[at].first = first
	}
	p.mu.Unlock()
	if first != nil {
		return first, nil
	}
	if o.isDone() { // nearly always
		return nil, o.err
	}
	select {
	case <-o.done:
		return nil, o.err
	case <-time.After(p.alone):
		return nil, nil //nolint:nilnil // it is no first request
	case <-ctx.Done():
		return nil, &Error{Unsent, ctx.Err()}
	}
}

var errNotGood = errors.New("the first message over the connection was refused, or had no answer")

// begun is the end of the first request over a link. If the peer failed or did not take our key, the next request is a first, too:
// Apple would refuse more.
func (p *Pool) begun(at place, o *opening, a Answer, err error) {
	isGood := err == nil && a.Status < 500 && a.Status != http.StatusUnauthorized && a.Status != http.StatusForbidden
	p.mu.Lock()
	if !isGood {
		o.err = &Error{Unsent, errNotGood}
		if p.links[at].first == o {
			p.links[at].first = nil
		}
	}
	p.mu.Unlock()
	if isUndialled(err) {
		o.err = err
		if p.Unreachable != nil {
			p.Unreachable(at.address, err)
		}
	}
	close(o.done)
}

func isUndialled(err error) bool {
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.Fate == Undialled
}

// post sends a request over a link.
func (p *Pool) post(ctx context.Context, to *url.URL, header http.Header, content *content, i int) (a Answer, err error) {
	var isDialled atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isDialled.Store(true) }}
	body, _ := content.open() // it never fails
	r := (&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header, ContentLength: int64(len(content.text)), Body: body, GetBody: content.open,
	}).WithContext(httptrace.WithClientTrace(ctx, trace))
	response, err := p.transports[i].RoundTrip(r)
	if err != nil {
		switch {
		case content.stop():
			return a, &Error{Unknown, err}
		case !isDialled.Load() && ctx.Err() == nil:
			return a, &Error{Undialled, err}
		}
		return a, &Error{Unsent, err}
	}
	a = Answer{Status: response.StatusCode, Header: response.Header}
	a.Body, a.Err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // the status tells its fate
	return a, nil
}

// Close has the connections end with the last request over them. New requests are refused.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.end()
}

var errClosed = errors.New("the connections are closed")

func (o *opening) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// dial opens a connection of a link, without TLS.
func (p *Pool) dial(ctx context.Context, network, address string, i int) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && p.inFlight == 0 { // else a request may wait for it
		_ = raw.Close()
		return nil, errClosed
	}
	c := &counted{Conn: raw, pool: p, at: place{address, i}}
	p.open[c] = struct{}{}
	if l := p.links[c.at]; l != nil { // else it is a proxy, or late
		c.link = l
		l.conns++
	}
	if p.Count != nil {
		p.Count(1)
	}
	return c, nil
}

// counted is a connection. When the last connection of a link is closed, the next request over the link is a first again.
type counted struct {
	net.Conn

	pool *Pool
	at   place
	link *link // nil: it leads to a proxy
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	p := c.pool
	p.mu.Lock()
	if _, isOpen := p.open[c]; isOpen {
		delete(p.open, c)
		if l := c.link; l != nil {
			if l.conns--; l.conns == 0 && l.first != nil && l.first.isDone() {
				l.first = nil
			}
			p.forget(c.at)
		}
		if p.Count != nil {
			p.Count(-1)
		}
	}
	p.mu.Unlock()
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
