package httpserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// serve serves until the test ends, and returns the result of Serve.
func serve(t *testing.T, server *http.Server, o httpserver.Options) (s *httpserver.Server, served chan error) {
	t.Helper()
	s, served = httpserver.New(server, o), make(chan error, 1)
	if s.Addr() != nil || s.Serve() == nil {
		t.Error("it has an address, or serves, before Listen")
	}
	if err := s.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() { served <- s.Serve() }()
	t.Cleanup(func() { _ = s.Close() })
	return s, served
}

// wantHello asks for the page of a server, on a connection of its own.
func wantHello(t *testing.T, scheme string, s *httpserver.Server) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := (&http.Client{Transport: transport}).Get(scheme + "://" + s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// borrowedTLS has a certificate.
func borrowedTLS() *tls.Config {
	server := httptest.NewTLSServer(nil)
	server.Close()
	return server.TLS
}

// The port is taken while a server has it, and free afterwards, also when the server never came to serving.
func TestServe(t *testing.T) {
	t.Parallel()
	for scheme, config := range map[string]*tls.Config{"http": nil, "https": borrowedTLS()} {
		s, served := serve(t, &http.Server{Handler: hello, TLSConfig: config}, httpserver.Options{})
		wantHello(t, scheme, s)
		second := httpserver.New(&http.Server{}, httpserver.Options{})
		if err := second.Listen(t.Context(), s.Addr().String()); err == nil || !strings.Contains(err.Error(), s.Addr().String()) {
			t.Errorf("Listen = %v, want an error that names the address", err)
		}
		for range 2 {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown = %v", err)
			}
		}
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
		for range 2 {
			never := listen(t, s.Addr().String(), nil)
			if err := errors.Join(never.Close(), never.Close(), never.Serve(), second.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestShutdownWaitsAndThenCutsOff(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	s, served := serve(t, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})}, httpserver.Options{})
	answered := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + s.Addr().String())
		if err == nil {
			_ = response.Body.Close()
		}
		answered <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(ctx) }()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	select {
	case err := <-down:
		t.Fatalf("Shutdown = %v before the request was answered", err)
	default:
	}
	cancel()
	if err := <-down; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("Shutdown = %v", err)
	}
	<-left
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}
