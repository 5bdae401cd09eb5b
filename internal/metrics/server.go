package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/activityd/activityd/internal/httpserver"
)

// The limits of the listener. A scrape that takes longer than the time for
// writing is cut off; Prometheus gives up after ten seconds itself, by default.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = 2 * time.Minute // longer than the time between two scrapes
	maxHeader    = 16 << 10

	// Its own, so that the clients of the API cannot take the probes away.
	maxConnections = 64
)

// Server serves the metrics, and the probes, on an address of its own, so that
// they are neither public nor in the way of the site's requests. Call Listen,
// then Serve. Shutdown and Close may be called from any goroutine once Listen
// has returned, and more than once.
type Server struct {
	*httpserver.Server
}

// NewServer returns a server of m that does not listen yet. The requests of
// /healthz and /readyz are answered by probes. Nobody needs a token, so on loopback
// all but the probes is answered only under the names of this machine: see
// [httpserver.Server.LocalOnly].
func NewServer(m *Metrics, probes http.Handler, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	s := &Server{httpserver.New(&http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}, httpserver.Options{MaxConnections: maxConnections, Log: log})}
	mux.Handle("GET /metrics", s.LocalOnly(m.handler(log)))
	mux.Handle("GET /{$}", s.LocalOnly(http.HandlerFunc(list)))
	mux.Handle("GET /healthz", probes)
	mux.Handle("GET /readyz", probes)
	return s
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

// Shutdown stops listening and waits for the scrapes under way. When ctx ends
// first it cuts them off: nobody needs to know.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.Server.Shutdown(ctx) != nil {
		return s.Close()
	}
	return nil
}
