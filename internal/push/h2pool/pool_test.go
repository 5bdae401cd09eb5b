package h2pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a request may take that is to be answered.
const patience = 60 * time.Second

// start starts a server with some streams a connection; 0: it speaks HTTP/1.1.
func start(t *testing.T, streams int, handler http.HandlerFunc) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = streams > 0
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
}

func newPool(t *testing.T, server *httptest.Server, o Options) *Pool {
	t.Helper()
	o.Address = server.Listener.Addr().String()
	o.DialTimeout = patience
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

func post(t *testing.T, p *Pool, server *httptest.Server) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	answered := false
	defer func() { p.Done(c, answered) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, NewBody([]byte("text")))
	if err != nil {
		return err
	}
	request.ContentLength = 4
	response, err := c.RoundTrip(request)
	if err != nil {
		return err
	}
	answered = true
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestRequestsShareFewConnections(t *testing.T) {
	t.Parallel()
	for _, streams := range []int{1, 10, 1000} {
		var mu sync.Mutex
		connections := make(map[string]bool)
		server, transport := start(t, streams, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			connections[r.RemoteAddr] = true
		})
		p := newPool(t, server, Options{Transport: transport, MaxConns: 2, GrowAfter: time.Millisecond})
		var sent sync.WaitGroup
		for range 300 {
			sent.Go(func() {
				if err := post(t, p, server); err != nil {
					t.Errorf("%d streams: %v", streams, err)
				}
			})
		}
		sent.Wait()
		if len(connections) == 0 || len(connections) > 2 {
			t.Errorf("%d streams: %d connections", streams, len(connections))
		}
	}
}

func TestARequestWaitsForAStreamAsLongAsItWants(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	server, transport := start(t, 1, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-end
	})
	p := newPool(t, server, Options{Transport: transport, MaxConns: 1, GrowAfter: time.Millisecond})
	answered := make(chan error, 1)
	go func() { answered <- post(t, p, server) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second stream: %v", err)
	}
	close(end)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	p.Close()
	if _, err := p.Acquire(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server, transport := start(t, 10, func(http.ResponseWriter, *http.Request) {})
	var tag atomic.Int32
	p := newPool(t, server, Options{Transport: transport, MaxConns: 1, Tag: func() any { return tag.Load() }})
	if err := post(t, p, server); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	var err error
	for range 10 { // the first ones may find a connection that they do not know to be dead
		if err = post(t, p, server); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("after the connections were cut: %v", err)
	}
	tag.Store(1)
	p.Retire()
	c, err := p.Acquire(t.Context())
	if err != nil || c.Tag != any(int32(1)) {
		t.Fatalf("after another tag: %v, %v", c, err)
	}
	p.Done(c, false)
	server.Close()
	p.Retire()
	if _, err := p.Acquire(t.Context()); err == nil {
		t.Error("a connection to a server that is gone")
	} else if _, ok := errors.AsType[*DialError](err); !ok || !strings.HasPrefix(err.Error(), "connect: ") {
		t.Errorf("a server that is gone: %v", err)
	}
}

func TestABodyThatWasNotReadStaysUnread(t *testing.T) {
	t.Parallel()
	read, stopped := NewBody([]byte("text")), NewBody([]byte("text"))
	if text, err := io.ReadAll(read); err != nil || string(text) != "text" || !read.Stop() {
		t.Errorf("%q, %v", text, err)
	}
	if stopped.Stop() {
		t.Error("it was not read")
	}
	if text, err := io.ReadAll(stopped); err == nil || len(text) > 0 {
		t.Errorf("%q of a request that was given up", text)
	}
}

func TestWhatAPeerDidNotProcess(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "5": 5 * time.Second, "-5": 0, "soon": 0,
		"Sun, 22 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sun, 22 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := RetryAfter(text, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", text, got, want)
		}
	}
	if !IsRefused(StreamError{Code: refusedStream}) || IsRefused(StreamError{Code: 8}) || IsRefused(io.EOF) || IsGoAway(nil) || IsGoAway(io.EOF) {
		t.Error("what is refused is taken for something else")
	}
}
