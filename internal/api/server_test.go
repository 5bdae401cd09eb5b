package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
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

func TestServe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if r, body := answer(t, s.dial(t, plainRead)); r.StatusCode != http.StatusOK {
		t.Errorf("%d %s", r.StatusCode, body)
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

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]api.Config{
		"no Reader":   {Enqueuer: &fakeEnqueuer{}, Health: healthy},
		"no Enqueuer": {Reader: &fakeReader{}, Health: healthy},
		"no Health":   {Reader: &fakeReader{}, Enqueuer: &fakeEnqueuer{}},
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
