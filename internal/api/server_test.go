package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// serving is a server on a free port.
type serving struct {
	*bundle
	addr   string
	served chan error // the result of Serve
}

func serve(t *testing.T, configure ...func(*api.Config)) *serving {
	t.Helper()
	s := &serving{bundle: setup(t, configure...), served: make(chan error, 1)}
	if err := s.server.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.addr = s.server.Addr().String()
	go func() { s.served <- s.server.Serve() }()
	t.Cleanup(func() { _ = s.server.Shutdown(context.Background()) })
	return s
}

// dial sends text as it stands and returns the connection.
func (s *serving) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answer reads a response, body and all.
func answer(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

const plainRead = "GET " + readPath + " HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestListenOnATakenPort(t *testing.T) {
	t.Parallel()
	first, second := serve(t), setup(t)
	if err := second.server.Listen(t.Context(), first.addr); err == nil || !strings.Contains(err.Error(), first.addr) {
		t.Errorf("Listen = %v, want an error that names %s", err, first.addr)
	}
	if second.server.Addr() != nil || second.server.Serve() == nil {
		t.Error("it serves all the same")
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if r, body := answer(t, s.dial(t, plainRead)); r.StatusCode != http.StatusOK {
		t.Errorf("%d %s", r.StatusCode, body)
	}
}

func TestShutdownFinishesRunningRequests(t *testing.T) {
	t.Parallel()
	s := serve(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s.reader.read = func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
		close(entered)
		<-release
		return recent.Answer{Source: recent.FromIndex}, ctx.Err()
	}
	conn := s.dial(t, plainRead)
	<-entered
	down := make(chan error, 1)
	go func() { down <- s.server.Shutdown(context.WithoutCancel(t.Context())) }()
	if err := <-s.served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if late, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr); err == nil {
		_ = late.Close()
		t.Error("a new connection was accepted")
	}
	select {
	case err := <-down:
		t.Fatalf("Shutdown = %v before the request was answered", err)
	default:
	}
	close(release)
	if r, body := answer(t, conn); r.StatusCode != http.StatusOK {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Errorf("a second Shutdown = %v", err)
	}
}

func TestShutdownCutsOffWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.RequestTimeout = time.Hour })
	entered, left := make(chan struct{}), make(chan error, 1)
	s.reader.read = func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
		close(entered)
		<-ctx.Done()
		left <- ctx.Err()
		return recent.Answer{}, ctx.Err()
	}
	s.dial(t, plainRead)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want one that wraps the context's", err)
	}
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the request's context ended with %v", err)
	}
}

func TestShutdownWithoutServe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.server.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	again := setup(t)
	if err := again.server.Listen(t.Context(), b.server.Addr().String()); err != nil {
		t.Errorf("the port is still taken: %v", err)
	}
	if err := again.server.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.ReadTimeout = 100 * time.Millisecond })
	r, body := answer(t, s.dial(t, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"type\":"))
	if r.StatusCode != http.StatusRequestTimeout || !strings.Contains(body, "/problems/request-timeout") || !r.Close {
		t.Errorf("%d %s, close = %t, want 408 and an end", r.StatusCode, body, r.Close)
	}
	if got := s.enqueuer.calls(); len(got) > 0 {
		t.Errorf("enqueued %v", got)
	}
}

func TestSlowHeader(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.ReadTimeout = 100 * time.Millisecond })
	conn := s.dial(t, "GET "+readPath+" HTTP/1.1\r\nHost:")
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("read %q, %v, want the end of the connection", got, err)
	}
}

func TestIdleConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.IdleTimeout = 100 * time.Millisecond })
	conn := s.dial(t, plainRead)
	answer(t, conn)
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("read %q, %v, want the end of the connection", got, err)
	}
}

func TestHeaderTooLarge(t *testing.T) {
	t.Parallel()
	s := serve(t)
	// net/http reads 4 KiB more than the limit; a byte beyond is enough.
	start := "GET " + readPath + " HTTP/1.1\r\nHost: localhost\r\nX-Large: "
	conn := s.dial(t, start+strings.Repeat("a", api.MaxHeader+4<<10-len(start)+1))
	if r, body := answer(t, conn); r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d %s, want 431", r.StatusCode, body)
	}
}

func TestOversizeBodyOverTheWire(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.MaxBody = 64 })
	body := strings.Repeat(" ", 65)
	conn := s.dial(t, fmt.Sprintf("POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	r, text := answer(t, conn)
	if r.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "more than 64 bytes") || !r.Close {
		t.Errorf("%d %s, close = %t, want 413 and an end", r.StatusCode, text, r.Close)
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]api.Config{
		"no Reader":   {Enqueuer: &fakeEnqueuer{}, Checker: healthy},
		"no Enqueuer": {Reader: &fakeReader{}, Checker: healthy},
		"no Checker":  {Reader: &fakeReader{}, Enqueuer: &fakeEnqueuer{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("New took it")
				}
			}()
			api.New(cfg)
		})
	}
}
