package metrics

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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

// Options say what a [Server] serves.
type Options struct {
	// Version of the program and Role of the process (all, api or workers), for
	// activityd_build_info. Default: unknown, all.
	Version, Role string
	// Probes answers /healthz and /readyz.
	Probes http.Handler
	// Collectors are gathered beside the default registry: those of one service,
	// of which a process may have several in its tests.
	Collectors []prometheus.Collector
	Log        *slog.Logger
}

// NewServer returns a server that does not listen yet. It asks for no token, so on
// loopback all but the probes is answered only under the names of this machine: see
// [httpserver.Server.LocalOnly].
func NewServer(o Options) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.Collectors...)
	promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_build_info", Help: "1, with the version of the program and of Go, and the role of the process.",
	}, []string{"version", "go_version", "role"}).
		WithLabelValues(cmp.Or(o.Version, "unknown"), runtime.Version(), cmp.Or(o.Role, "all")).Set(1)
	gatherers := prometheus.Gatherers{prometheus.DefaultGatherer, registry}

	mux := http.NewServeMux()
	s := &Server{httpserver.New(&http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}, httpserver.Options{MaxConnections: maxConnections, Log: o.Log})}
	mux.Handle("GET /metrics", s.LocalOnly(promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // part of the truth is better than none
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
	})))
	mux.Handle("GET /{$}", s.LocalOnly(http.HandlerFunc(list)))
	mux.Handle("GET /healthz", o.Probes)
	mux.Handle("GET /readyz", o.Probes)
	return s
}

// list answers with links to the other pages.
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
// first it cuts them off, which is no error.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.Server.Shutdown(ctx) != nil {
		return s.Close()
	}
	return nil
}
