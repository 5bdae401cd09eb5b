package h2pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a request may take that is to be answered.
const patience = 60 * time.Second

// start starts a server with some streams a connection; 0: it speaks HTTP/1.1.
func start(t *testing.T, streams int, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = streams > 0
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func newPool(t testing.TB, server *httptest.Server, o Options) *Pool {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	o.Address, o.TLS, o.HTTP1 = server.Listener.Addr().String(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, true
	o.DialTimeout = patience
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

func noFields(_ any, to []Field) ([]Field, error) { return to, nil }

func post(t *testing.T, p *Pool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := p.Send(ctx, Request{Path: "/", Header: noFields, Body: []byte("text")})
	return errors.Join(err, a.Err)
}

func TestRequestsShareFewConnections(t *testing.T) {
	t.Parallel()
	const maxConns = 2
	for _, streams := range []int{0, 1, 10, 1000} {
		var mu sync.Mutex
		connections := make(map[string]bool)
		handled, most := 0, 0
		server := start(t, streams, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			connections[r.RemoteAddr] = true
			handled++
			most = max(most, handled)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			handled--
			mu.Unlock()
		})
		var open atomic.Int32
		p := newPool(t, server, Options{
			MaxConns: maxConns, GrowAfter: time.Millisecond,
			Count: func(delta int) { open.Add(int32(delta)) },
		})
		var sent sync.WaitGroup
		for range 300 {
			sent.Go(func() {
				if err := post(t, p); err != nil {
					t.Errorf("%d streams: %v", streams, err)
				}
			})
		}
		sent.Wait()
		if n := open.Load(); n < 0 || n > maxConns {
			t.Errorf("%d streams: %d connections are kept", streams, n)
		}
		p.Close()
		if n := open.Load(); n != 0 {
			t.Errorf("%d streams: %d connections are kept by a pool that is closed", streams, n)
		}
		mu.Lock()
		// net/http gives up a connection of HTTP/1.1 if the goroutine that wrote a request
		// does not say so within 50 ms of the answer, which happens on a busy machine: so
		// there may be more than two, but not at the same time.
		switch {
		case streams == 0 && most > maxConns:
			t.Errorf("HTTP/1.1: %d requests at once over %d connections", most, maxConns)
		case streams > 0 && len(connections) > maxConns:
			t.Errorf("%d streams: %d connections", streams, len(connections))
		case streams > 0 && most > maxConns*streams:
			t.Errorf("%d streams: %d requests at once", streams, most)
		}
		mu.Unlock()
	}
}

func TestARequestWaitsForAStreamAsLongAsItWants(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	server := start(t, 1, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-end
	})
	p := newPool(t, server, Options{MaxConns: 1, GrowAfter: time.Millisecond})
	answered := make(chan error, 1)
	go func() { answered <- post(t, p) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Send(ctx, Request{Path: "/", Header: noFields}); !errors.Is(err, context.DeadlineExceeded) || FateOf(err) != NotWritten {
		t.Errorf("a second stream: %v", err)
	}
	close(end)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	p.Close()
	if err := post(t, p); !errors.Is(err, ErrClosed) || FateOf(err) != NotWritten {
		t.Errorf("after the end: %v", err)
	}
}

func TestConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := start(t, 10, func(http.ResponseWriter, *http.Request) {})
	var tag atomic.Int32
	p := newPool(t, server, Options{MaxConns: 1, Tag: func() any { return tag.Load() }})
	if err := post(t, p); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	var err error
	for range 10 { // the first ones may find a connection that they do not know to be dead
		if err = post(t, p); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("after the connections were cut: %v", err)
	}
	tag.Store(1)
	p.Retire()
	a, err := p.Send(t.Context(), Request{Path: "/", Header: func(tag any, to []Field) ([]Field, error) {
		if tag != any(int32(1)) {
			return nil, errors.New("another tag")
		}
		return to, nil
	}})
	if err != nil || a.Conn.Tag != any(int32(1)) {
		t.Fatalf("after another tag: %v", err)
	}
	server.Close()
	p.Retire()
	if err := post(t, p); err == nil {
		t.Error("a connection to a server that is gone")
	} else if _, ok := errors.AsType[*DialError](err); !ok || !strings.HasPrefix(err.Error(), "connect: ") {
		t.Errorf("a server that is gone: %v", err)
	}
}

// Whenever callers give up, each is told so, and what comes afterwards is answered.
func TestGivingUpAtAnyTime(t *testing.T) {
	t.Parallel()
	for _, streams := range []int{0, 5} {
		server := start(t, streams, func(http.ResponseWriter, *http.Request) { runtime.Gosched() })
		p := newPool(t, server, Options{MaxConns: 2, GrowAfter: time.Millisecond})
		var sent sync.WaitGroup
		var gaveUp atomic.Int32
		for n := range 400 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n*n%20000)*time.Microsecond)
			sent.Go(func() {
				defer cancel()
				a, err := p.Send(ctx, Request{Path: "/", Header: noFields, Body: []byte("text")})
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					gaveUp.Add(1)
				case err != nil || a.Status != http.StatusOK:
					t.Errorf("%d streams: %d, fate %d, %v", streams, a.Status, FateOf(err), err)
				}
			})
		}
		sent.Wait()
		if gaveUp.Load() == 0 {
			t.Errorf("%d streams: no one gave up", streams)
		}
		if err := post(t, p); err != nil {
			t.Errorf("%d streams, afterwards: %v", streams, err)
		}
	}
}

func TestABodyThatWasNotReadStaysUnread(t *testing.T) {
	t.Parallel()
	read, stopped := newBody([]byte("text")), newBody([]byte("text"))
	if text, err := io.ReadAll(read); err != nil || string(text) != "text" || !read.stop() {
		t.Errorf("%q, %v", text, err)
	}
	if stopped.stop() {
		t.Error("it was not read")
	}
	if text, err := io.ReadAll(stopped); err == nil || len(text) > 0 {
		t.Errorf("%q of a request that was given up", text)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "99999999999": 0,
		"Sun, 22 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sun, 22 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := RetryAfter(text, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", text, got, want)
		}
	}
}
