package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The limits of the listener. A scrape that takes longer than the time for
// writing is cut off; Prometheus gives up after ten seconds itself, by default.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = 2 * time.Minute // longer than the time between two scrapes
	maxHeader    = 16 << 10
)

// Server serves the metrics, and the probes, on an address of its own, so that
// they are neither public nor in the way of the site's requests. Call Listen,
// then Serve. Shutdown and Close may be called from any goroutine once Listen
// has returned, and more than once.
type Server struct {
	http     *http.Server
	listener net.Listener
}

// NewServer returns a server of m that does not listen yet. The requests of
// /healthz and /readyz are answered by probes.
func NewServer(m *Metrics, probes http.Handler, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.handler(log))
	mux.Handle("GET /healthz", probes)
	mux.Handle("GET /readyz", probes)
	mux.HandleFunc("GET /{$}", list)
	return &Server{http: &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
}

// list tells people what there is.
func list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!doctype html>
<title>activityd</title>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus
<li><a href="/healthz">/healthz</a>: does the process live?
<li><a href="/readyz">/readyz</a>: can it use MySQL and Redis?
</ul>
`)
}

// Listen opens address (host:port; port 0 picks a free one), so that a port that
// is taken is an error at start.
func (s *Server) Listen(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen for metrics on %q: %w", address, err)
	}
	s.listener = listener
	return nil
}

// Addr is the address that Listen opened, nil before.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Serve answers until Shutdown or Close, and then returns nil.
func (s *Server) Serve() error {
	if s.listener == nil {
		return errors.New("cannot serve metrics: Listen comes first")
	}
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Shutdown stops listening and waits for the scrapes under way. When ctx ends
// first it cuts them off: nobody needs to know.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.http.Shutdown(ctx) == nil {
		return s.closeListener()
	}
	return s.Close()
}

// Close stops at once.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), s.closeListener())
}

// closeListener is for a listener that was never served from: the server closes
// the others itself.
func (s *Server) closeListener() error {
	if s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
