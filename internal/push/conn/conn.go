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
	alone    time.Duration    // maxAlone
	hosts    map[string]*host // by host:port; with requests in flight, or connections
	open     map[*counted]struct{}
	inFlight int
	retired  bool // the connections end with the last request
	closed   bool
}

// host is the links to a host.
type host struct{ links [links]link }

type link struct {
	inFlight int
	conns    int      // that are open
	first    *opening // nil: no request began since a connection was closed
}

// opening is the first request over a link.
type opening struct {
	done   chan struct{} // closed at its end, after the fields below were set
	isGood bool          // further requests may go over the link
	asks   bool          // answer asks all to wait
	answer Answer
	err    error
}

// New returns a pool. It connects when there is something to send, and is to be closed.
func New(o Options) *Pool {
	o.Silence = cmp.Or(o.Silence, silence)
	p := &Pool{Options: o, alone: maxAlone, hosts: make(map[string]*host), open: make(map[*counted]struct{})}
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
	address := addressOf(to)
	h, i := p.take(address)
	defer p.put(address, h, i)
	first, isOver, err := p.begin(ctx, &h.links[i])
	switch {
	case err != nil:
		return Answer{}, err
	case isOver:
		return first.answer, nil
	}
	a, err := p.post(ctx, to, header, &content{text: text, before: before}, i)
	if first != nil {
		p.begun(address, &h.links[i], first, a, err)
	}
	return a, err
}

func addressOf(to *url.URL) string { return net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")) }

// take chooses a link to a host: the first with few requests, else that with the fewest.
func (p *Pool) take(address string) (h *host, i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h = p.hosts[address]; h == nil {
		h = &host{}
		p.hosts[address] = h
	}
	for k := range h.links {
		if h.links[k].inFlight < fewOnLink {
			i = k
			break
		}
		if h.links[k].inFlight < h.links[i].inFlight {
			i = k
		}
	}
	h.links[i].inFlight++
	p.inFlight++
	return h, i
}

// put is the end of a request over a link.
func (p *Pool) put(address string, h *host, i int) {
	p.mu.Lock()
	h.links[i].inFlight--
	p.inFlight--
	p.forget(address, h)
	p.closeAll(p.retired && p.inFlight == 0)
}

// forget forgets a host to which there is neither a request nor a connection. It holds mu.
func (p *Pool) forget(address string, h *host) {
	if !slices.ContainsFunc(h.links[:], func(l link) bool { return l.inFlight > 0 || l.conns > 0 }) {
		delete(p.hosts, address)
	}
}

// begin returns when a request may go over a link: at once if it is the first request, whose opening begin then returns, else when
// the first request has ended, or has taken too long. If it got no connection, its error is that of all that waited; if
// its answer asks all to wait, isOver is true, and the answer is that of all that waited, too.
func (p *Pool) begin(ctx context.Context, l *link) (first *opening, isOver bool, err error) {
	var enough <-chan time.Time
	for {
		p.mu.Lock()
		o := l.first
		if o == nil {
			first = &opening{done: make(chan struct{})}
			l.first = first
		}
		isGood := o != nil && o.isGood
		p.mu.Unlock()
		switch {
		case isGood, first != nil:
			return first, false, nil
		case enough == nil:
			enough = time.After(p.alone)
		}
		select {
		case <-o.done:
		case <-enough:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, &Error{Unsent, ctx.Err()}
		}
		switch {
		case isUndialled(o.err):
			return nil, false, o.err
		case o.asks:
			return o, true, nil
		}
	}
}

// begun is the end of the first request over a link. If the peer failed or did not take our key, the next request is a first, too:
// Apple would refuse more.
func (p *Pool) begun(address string, l *link, o *opening, a Answer, err error) {
	p.mu.Lock()
	o.answer, o.err = a, err
	o.asks = a.Status == http.StatusServiceUnavailable && RetryAfter(a.Header, time.Now()) > 0
	o.isGood = err == nil && a.Status < 500 && a.Status != http.StatusUnauthorized && a.Status != http.StatusForbidden
	if !o.isGood && l.first == o {
		l.first = nil
	}
	p.mu.Unlock()
	close(o.done)
	if isUndialled(err) && p.Unreachable != nil {
		p.Unreachable(address, err)
	}
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

// Retire has the connections end with the last request over them. New requests are for another pool.
func (p *Pool) Retire() {
	p.mu.Lock()
	p.retired = true
	p.closeAll(p.inFlight == 0)
}

// Close closes all connections. The fate of requests in flight is unknown.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.closeAll(true)
}

// closeAll closes all connections, if they are over. It gives up mu.
func (p *Pool) closeAll(areOver bool) {
	var all []*counted
	if areOver {
		all = slices.Collect(maps.Keys(p.open))
	}
	p.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // the transport notices
	}
}

var errClosed = errors.New("the connections are closed")

// dial opens a connection of a link, without TLS.
func (p *Pool) dial(ctx context.Context, network, address string, i int) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: raw, pool: p, address: address, link: i}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = raw.Close()
		return nil, errClosed
	}
	p.open[c] = struct{}{}
	if h := p.hosts[address]; h != nil { // else it is a proxy, or late
		c.host = h
		h.links[i].conns++
	}
	if p.Count != nil {
		p.Count(1)
	}
	return c, nil
}

// counted is a connection. When the last connection of a link is closed, the next request over the link is a first again.
type counted struct {
	net.Conn

	pool    *Pool
	address string
	host    *host // nil: it leads to a proxy
	link    int
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	p := c.pool
	p.mu.Lock()
	if _, isOpen := p.open[c]; isOpen {
		delete(p.open, c)
		if h := c.host; h != nil {
			l := &h.links[c.link]
			if l.conns--; l.conns == 0 && l.first != nil && l.first.isGood {
				l.first = nil
			}
			p.forget(c.address, h)
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
