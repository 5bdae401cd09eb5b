package servertest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/retry"
)

// Proxy forwards connections to a server, and delays, cuts or refuses them on demand. It
// is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	target string
	refuse bool
	delay  time.Duration
	lose   []byte // a text that a client sends: its answer is lost
	pairs  map[*pair]struct{}
}

// NewProxy starts a proxy before target: host:port, or the path of a
// unix socket. It is closed, with its connections, when t ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("servertest: start a proxy: %v", err)
	}
	p := &Proxy{target: target, listener: listener, pairs: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close() // its connections are cut anyway
		p.Refuse(true)
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// RedisURL is the proxy's address for go-redis' ParseURL.
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

// Delay delays each piece of data, in either direction, by d. Zero ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// LoseAnswer cuts the next connection on which a client sends text, as in a statement, when
// the server has answered, and in place of the answer.
func (p *Proxy) LoseAnswer(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = []byte(text)
}

// Move makes the proxy forward new connections to another server. Open connections stay as
// they are: see Cut.
func (p *Proxy) Move(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections counts the open connections to target, the present server or an earlier target.
func (p *Proxy) Connections(target string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		if pair.target == target {
			n++
		}
	}
	return n
}

// Refuse makes the proxy close new connections at once, or forward them again.
// Open connections stay open: see Cut.
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
		pair.close()
	}
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
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	network := "tcp"
	if strings.Contains(target, "/") {
		network = "unix"
	}
	server, err := net.Dial(network, target)
	if err != nil {
		_ = client.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	pair := &pair{target: target, client: client, server: server, cancel: cancel}
	defer pair.close()
	if !p.admit(pair) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.forward(ctx, pair, server, client) })
	both.Go(func() { p.forward(ctx, pair, client, server) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, pair)
}

// admit makes the pair known to Cut, unless connections are refused.
func (p *Proxy) admit(pair *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refuse {
		p.pairs[pair] = struct{}{}
	}
	return !p.refuse
}

// forward copies from an end to the other until either is closed, and then closes both.
func (p *Proxy) forward(ctx context.Context, pair *pair, to, from net.Conn) {
	defer pair.close()
	buffer := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buffer)
		p.mu.Lock()
		delay := p.delay
		lost := pair.lost && from == pair.server
		if from == pair.client && len(p.lose) > 0 && bytes.Contains(buffer[:n], p.lose) {
			pair.lost, p.lose = true, nil
		}
		p.mu.Unlock()
		if lost || retry.Sleep(ctx, delay) != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil || readErr != nil {
			return
		}
	}
}

// pair is a client's connection and the proxy's to the server.
type pair struct {
	target         string
	client, server net.Conn
	cancel         context.CancelFunc // ends a delay
	lost           bool               // the next answer is; under Proxy.mu
}

// close closes both connections. It may be called more than once.
func (c *pair) close() {
	c.cancel()
	_ = c.client.Close() // it may be closed already
	_ = c.server.Close()
}
