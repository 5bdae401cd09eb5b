package servertest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Proxy forwards connections to a server, and delays, cuts or refuses them when told
// to. It is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	closed   chan struct{}
	running  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	refuse bool
	delay  time.Duration
	pairs  map[*pair]struct{}
}

// NewProxy starts a proxy before target, which is host:port or the path of a
// unix socket. It is closed, with its connections, when t ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("servertest: start a proxy: %v", err)
	}
	p := &Proxy{target: target, listener: listener, closed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// RedisURL is the proxy's address as go-redis' ParseURL takes it.
func (p *Proxy) RedisURL() string { return "redis://" + p.Addr() }

// MySQLDSN is dsn with the proxy's address in place of the server's. It panics
// when dsn cannot be parsed.
func (p *Proxy) MySQLDSN(dsn string) string {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	cfg.Net, cfg.Addr = "tcp", p.Addr()
	return cfg.FormatDSN()
}

// Delay makes each piece of data, in either direction, arrive d later than the
// piece before it did. Zero ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse makes the proxy close new connections at once, or not any longer.
// Those that are open stay open: see Cut.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Cut closes all connections that are open now.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.cut()
	}
}

// close ends the proxy and waits for its goroutines.
func (p *Proxy) close() {
	close(p.closed)
	_ = p.listener.Close() // its error would be about connections that are cut now
	p.Cut()
	p.running.Wait()
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve connects a client to the server, and forwards until either closes.
func (p *Proxy) serve(client net.Conn) {
	pair := &pair{client: client, gone: make(chan struct{})}
	defer pair.cut()
	if !p.admit(pair) {
		return
	}
	defer p.forget(pair)
	var both sync.WaitGroup
	both.Go(func() { p.forward(pair, pair.server, pair.client) })
	both.Go(func() { p.forward(pair, pair.client, pair.server) })
	both.Wait()
}

// admit connects the pair to the server and makes it known to Cut. It reports false
// if connections are refused or the server cannot be reached.
func (p *Proxy) admit(pair *pair) bool {
	server, err := net.Dial(network(p.target), p.target)
	if err != nil {
		return false
	}
	pair.server = server
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	if p.refuse {
		return false
	}
	p.pairs[pair] = struct{}{}
	return true
}

func (p *Proxy) forget(pair *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, pair)
}

// forward copies from one end to the other until one of them is closed, and
// then closes both.
func (p *Proxy) forward(pair *pair, to, from net.Conn) {
	defer pair.cut()
	buffer := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buffer)
		if !p.hold(pair) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil || readErr != nil {
			return
		}
	}
}

// hold waits for the delay that is set, and reports whether the pair is still
// connected after it.
func (p *Proxy) hold(pair *pair) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-pair.gone:
		return false
	}
}

// pair is one client and its connection to the server; server is nil when there
// is none.
type pair struct {
	client, server net.Conn
	once           sync.Once
	gone           chan struct{} // closed by cut
}

// cut closes both connections.
func (c *pair) cut() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.client.Close() // an error changes nothing
		if c.server != nil {
			_ = c.server.Close()
		}
	})
}

// network is that of an address: a path is a unix socket.
func network(target string) string {
	if strings.Contains(target, "/") {
		return "unix"
	}
	return "tcp"
}
