package webpush

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

const (
	maxOrigins = 256 // with connections that are kept
	maxConns   = 4   // to an origin
	growAfter  = 500 * time.Millisecond

	dialTimeout = 5 * time.Second

	provenFor = 10 * time.Minute
)

// origin is a push service and its connections.
type origin struct {
	*h2pool.Pool

	address string
	users   int       // that got it and did not put it back
	used    time.Time // when the last one put it back
	proof   atomic.Pointer[proof]
}

// proof says that a push service took something under a key.
type proof struct {
	key string // the public one
	at  time.Time
}

// prove notes that the push service took something under a key.
func (o *origin) prove(key string, now time.Time) {
	if old := o.proof.Load(); old == nil || old.key != key || now.Sub(old.at) > provenFor/10 {
		o.proof.Store(&proof{key: key, at: now})
	}
}

// isProven reports whether the push service took something under the key lately.
func (o *origin) isProven(key string, now time.Time) bool {
	p := o.proof.Load()
	return p != nil && p.key == key && now.Sub(p.at) < provenFor
}

// origins are the push services that are connected to. The connections of the least
// recently used are closed when there are too many; if all are in use, another one's are
// closed when it is not used any more.
type origins struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  *tls.Config

	mu      sync.Mutex
	kept    map[string]*origin // by address
	closed  bool
	closing sync.WaitGroup // those whose connections are being closed, which may wait for the peer
}

// get returns the push service at an address (host:port), which is to be put back.
func (s *origins) get(address string) *origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.kept[address]
	if o == nil {
		o = &origin{address: address, Pool: h2pool.New(h2pool.Options{
			Address: address, TLS: s.tls, HTTP1: true, Dial: s.dial, MaxConns: maxConns, GrowAfter: growAfter, DialTimeout: dialTimeout,
			Count: push.CountConnections(Platform),
		})}
		switch {
		case s.closed:
			o.Close() // nothing is sent over it
		case s.makeRoom():
			s.kept[address] = o
		}
	}
	o.users++
	return o
}

// makeRoom reports whether there is room for one more to be kept. It holds mu.
func (s *origins) makeRoom() bool {
	if len(s.kept) < maxOrigins {
		return true
	}
	var oldest *origin
	for _, o := range s.kept {
		if o.users == 0 && (oldest == nil || o.used.Before(oldest.used)) {
			oldest = o
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.kept, oldest.address)
	s.closing.Go(oldest.Close)
	return true
}

func (s *origins) put(o *origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.users--
	o.used = time.Now()
	switch {
	case o.users > 0 || s.kept[o.address] == o:
	case s.closed: // none waits for it any more
		go o.Close()
	default:
		s.closing.Go(o.Close)
	}
}

// close closes all connections. Nothing is sent afterwards.
func (s *origins) close() {
	s.mu.Lock()
	s.closed = true
	for _, o := range s.kept {
		s.closing.Go(o.Close)
	}
	clear(s.kept)
	s.mu.Unlock()
	s.closing.Wait()
}
