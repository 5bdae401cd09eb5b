// Package apnstest is a fake of Apple's push service, at the level of HTTP/2 frames. It verifies all
// properties of a request that Apple documents: the token and its signature, the headers, the payload. Tests
// can script it to misbehave, and judge by its log of accepted messages. It is for tests, benchmarks and
// demonstrations, and needs no package testing.
package apnstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/testing/pushtest"
)

// Options configure a [Server]. The zero value is a service like Apple's.
type Options struct {
	Addr   string // "": a free port of 127.0.0.1
	KeyID  string // of the only key at first; "": KEY1234567
	TeamID string // "": TEAM123456
	Topic  string // "": com.example.app
	// MaxStreams is the limit of streams of a connection on which a token was verified; 0: 1000. Until then it is 1.
	MaxStreams uint32
	// Discard keeps no log of accepted messages. OnAccept, if not nil, is called for each message in any
	// case, by a goroutine for each connection.
	Discard  bool
	OnAccept func(Request)
}

// Request is a message as it was received.
type Request struct {
	ID         string // apns-id
	Token      string // the device's
	Collapse   string // apns-collapse-id
	Topic      string
	PushType   string
	Priority   string
	Expiration string // unix seconds; "": the header was not there
	KeyID      string // of the provider's token
	Payload    []byte
	Time       time.Time // when it was received
	Conn       int       // the connection's number, from 1
	Stream     uint32
}

// Answer is the server's answer to a valid request. The zero value accepts it.
type Answer struct {
	Status     int // 0: 200, accepted
	Reason     string
	Timestamp  time.Time // of a 410
	RetryAfter time.Duration
	Delay      time.Duration
	Until      <-chan struct{} // when it is closed, the answer is given; nil: at once

	GoAway *GoAway       // is sent before anything else
	Ignore bool          // there is no answer
	Reset  http2.ErrCode // the stream is reset instead of an answer
	Cut    bool          // the connection is closed instead of an answer
	Accept bool          // with Ignore, Reset and Cut: the message is accepted all the same
}

// GoAway is a GOAWAY frame.
type GoAway struct {
	Last   uint32 // streams above it are not processed
	Code   http2.ErrCode
	Reason string // "": without debug data
	Close  bool   // the connection is closed afterwards

	received bool // Last is the last stream that was received
}

// Stats are counts since the start.
type Stats struct {
	Conns    int // connections that were opened
	Live     int // connections now
	Requests int // requests that came in whole
	Accepted int // messages
	Refused  int // streams above the limit
	MaxOpen  int // streams of a connection at a time
}

// Server is a fake push service.
type Server struct {
	pushtest.Roots

	o       Options
	tls     *tls.Config
	address string
	answer  atomic.Pointer[func(Request) Answer]
	wg      sync.WaitGroup

	closed chan struct{}
	tokens tokens

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	log      []Request
	changed  chan struct{} // closed and replaced with each change of log and stats
	stats    Stats
	max      uint32 // Options.MaxStreams, as of now
	first    uint32
	gone     map[string]time.Time
}

// TB is the part of testing.TB that is needed.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// Start starts a server that lives as long as the test.
func Start(t TB) *Server { return StartWith(t, Options{}) }

// StartWith is Start with options.
func StartWith(t TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatalf("start a fake APNs: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// New starts a server. The caller must close it.
func New(o Options) (*Server, error) {
	for field, value := range map[*string]string{
		&o.Addr: "127.0.0.1:0", &o.KeyID: "KEY1234567", &o.TeamID: "TEAM123456", &o.Topic: "com.example.app",
	} {
		if *field == "" {
			*field = value
		}
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 1000
	}
	s := &Server{
		o: o, conns: map[*conn]struct{}{}, changed: make(chan struct{}), gone: map[string]time.Time{},
		max: o.MaxStreams, first: 1, closed: make(chan struct{}),
	}
	certificate, roots, err := pushtest.NewCertificate()
	if err != nil {
		return nil, err
	}
	s.Roots = roots
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{certificate}}
	if _, err := s.NewKey(o.KeyID); err != nil {
		return nil, err
	}
	s.address = o.Addr
	if err := s.Up(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close stops the server. It is to be called once.
func (s *Server) Close() {
	close(s.closed)
	s.Down()
	s.wg.Wait()
}

// Up listens again after [Server.Down], on the same port.
func (s *Server) Up() error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.address)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address, s.listener = listener.Addr().String(), listener
	s.wg.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			s.wg.Go(func() { s.serve(listener, nc) })
		}
	})
	return nil
}

// Down closes the port and all connections.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	for c := range s.conns {
		_ = c.nc.Close()
	}
}

// URL returns where it is: https://127.0.0.1:port.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "https://" + s.address
}

// KeyID returns the id of the key that it knew first.
func (s *Server) KeyID() string { return s.o.KeyID }

// TeamID returns the team that its tokens must be of.
func (s *Server) TeamID() string { return s.o.TeamID }

// Topic returns the only app.
func (s *Server) Topic() string { return s.o.Topic }

// Key returns the first key as the content of a .p8 file.
func (s *Server) Key() []byte { return s.tokens.pem(s.o.KeyID) }

// NewKey makes another key known and returns it as the content of a .p8 file.
func (s *Server) NewKey(id string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return s.tokens.add(id, key)
}

// RevokeKey makes a key unknown.
func (s *Server) RevokeKey(id string) { s.tokens.remove(id) }

// Answer has all further valid requests answered by f; nil accepts them. It is called by the
// reader of a connection, and so must not block: see [Answer.Until].
func (s *Server) Answer(f func(Request) Answer) {
	if f == nil {
		s.answer.Store(nil)
		return
	}
	s.answer.Store(&f)
}

// Unregister answers a device's messages by 410 from now on, Unregistered since a time.
func (s *Server) Unregister(token string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[token] = since
}

// Register ends [Server.Unregister]: its app was installed again.
func (s *Server) Register(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, token)
}

// SetMaxStreams changes the limit of streams of all connections.
func (s *Server) SetMaxStreams(n uint32) {
	s.mu.Lock()
	s.max, s.first = n, n
	conns := s.all()
	s.mu.Unlock()
	for _, c := range conns {
		c.setLimit(n)
	}
}

// GoAway closes all connections gracefully: the server answers each request that it has received.
func (s *Server) GoAway(reason string) {
	s.mu.Lock()
	conns := s.all()
	s.mu.Unlock()
	for _, c := range conns {
		c.goAway(GoAway{received: true, Reason: reason})
	}
}

// Cut closes all connections at once.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.nc.Close()
	}
}

// all returns the connections. It holds mu.
func (s *Server) all() []*conn {
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// Accepted returns the log of accepted messages, in the order of acceptance.
func (s *Server) Accepted() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Stats returns counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot()
}

func (s *Server) snapshot() Stats {
	stats := s.stats
	stats.Live = len(s.conns)
	return stats
}

// Await returns when the counts fulfil a condition.
func (s *Server) Await(ctx context.Context, until func(Stats) bool) error {
	for {
		s.mu.Lock()
		stats := s.snapshot()
		changed := s.changed
		s.mu.Unlock()
		if until(stats) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w; so far %+v", context.Cause(ctx), stats)
		}
	}
}

// update changes the fields that mu guards, and wakes the goroutines that await a change.
func (s *Server) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// accept writes a message to the log.
func (s *Server) accept(r Request) {
	s.update(func() {
		s.stats.Accepted++
		if !s.o.Discard {
			s.log = append(s.log, r)
		}
	})
	if s.o.OnAccept != nil {
		s.o.OnAccept(r)
	}
}
