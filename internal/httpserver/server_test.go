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
func serve(t *testing.T, server *http.Server) (s *httpserver.Server, served chan error) {
	t.Helper()
	s, served = httpserver.New(server, httpserver.Options{}), make(chan error, 1)
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

// get asks for the page of a server, on a connection of its own.
func get(t *testing.T, scheme string, s *httpserver.Server) (body string, err error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := (&http.Client{Transport: transport}).Get(scheme + "://" + s.Addr().String())
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return string(all), err
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestServe(t *testing.T) {
	t.Parallel()
	s, served := serve(t, &http.Server{Handler: hello})
	if body, err := get(t, "http", s); body != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	for range 2 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	borrowed := httptest.NewTLSServer(nil)
	borrowed.Close()
	s, _ := serve(t, &http.Server{Handler: hello, TLSConfig: borrowed.TLS})
	if body, err := get(t, "https", s); body != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

func TestATakenPortIsAnError(t *testing.T) {
	t.Parallel()
	first := listen(t, "127.0.0.1:0", nil)
	second := httpserver.New(&http.Server{}, httpserver.Options{})
	if err := second.Listen(t.Context(), first.Addr().String()); err == nil || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Errorf("Listen = %v, want an error that names the address", err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("closing what never listened: %v", err)
	}
}

func TestShutdownWaitsAndThenCutsOff(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	s, served := serve(t, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})})
	answered := make(chan error, 1)
	go func() {
		_, err := get(t, "http", s)
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

// The listener is closed, also when it never came to serving.
func TestThePortIsFreeAfterwards(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*httpserver.Server) error{
		"Close":    (*httpserver.Server).Close,
		"Shutdown": func(s *httpserver.Server) error { return s.Shutdown(t.Context()) },
	} {
		s := listen(t, "127.0.0.1:0", nil)
		for range 2 {
			if err := stop(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Serve(); err != nil {
			t.Errorf("%s: serving afterwards: %v", name, err)
		}
		_ = listen(t, s.Addr().String(), nil)
	}
}
