package metrics

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/activityd/activityd/internal/httpserver"
)

// Server serves the metrics and the probes. Call Listen, then Serve. Shutdown and Close may
// be called from any goroutine after Listen, and more than once.
type Server struct {
	*httpserver.Server
}

// Options are the parts of a [Server].
type Options struct {
	// Version of the program, if known, and Role of the process (all, api or workers), for
	// activityd_build_info.
	Version, Role string
	// Probes answers /healthz and /readyz.
	Probes http.Handler
	// Collectors belong to a service. In tests a process has several services.
	// They are gathered beside the default registry.
	Collectors []prometheus.Collector
	// Console makes the page for operators, with [httpserver.Server.Knows] for its hosts; nil: there is none.
	Console func(knows func(host string) bool) http.Handler
	Log     *slog.Logger
}

// NewServer returns a server that does not listen yet. It needs no token, so all but the
// probes is protected by [httpserver.Server.LocalOnly]; the console protects itself, too.
func NewServer(o Options) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.Collectors...)
	registry.MustRegister(newBuildInfo(o.Version, o.Role))
	gatherers := prometheus.Gatherers{prometheus.DefaultGatherer, registry}

	mux := http.NewServeMux()
	s := &Server{httpserver.New(&http.Server{
		Handler:        mux,
		ReadTimeout:    5 * time.Second,  // of the header, too
		WriteTimeout:   15 * time.Second, // longer than Prometheus waits by default
		IdleTimeout:    2 * time.Minute,  // longer than the time between two scrapes
		MaxHeaderBytes: 16 << 10,
	}, httpserver.Options{MaxConnections: 64, Log: o.Log})}
	mux.Handle("GET /metrics", s.LocalOnly(promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
	})))
	mux.Handle("GET /{$}", s.LocalOnly(http.HandlerFunc(list)))
	if o.Console != nil {
		mux.Handle("/console/", s.LocalOnly(o.Console(s.Knows)))
	}
	mux.Handle("GET /healthz", o.Probes)
	mux.Handle("GET /readyz", o.Probes)
	// Profiles, but not the command line, where passwords may be.
	mux.Handle("GET /debug/pprof/", s.profiles(pprof.Index))
	mux.Handle("GET /debug/pprof/profile", s.profiles(pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", s.profiles(pprof.Trace))
	return s
}

// profiles protects a profile: it costs the process time, so only this machine may ask for it, wherever the server listens.
func (s *Server) profiles(next http.HandlerFunc) http.Handler {
	return s.LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpserver.IsLocal(r) {
			http.Error(w, "profiles are for clients on this machine", http.StatusForbidden)
			return
		}
		next(w, r)
	}))
}

// newBuildInfo returns the metric of the build.
func newBuildInfo(version, role string) *prometheus.GaugeVec {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_build_info", Help: "1, with the version of the program and of Go, and the role of the process.",
	}, []string{"version", "go_version", "role"})
	info.WithLabelValues(cmp.Or(version, "unknown"), runtime.Version(), role).Set(1)
	return info
}

// list responds with links to the pages.
func list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!doctype html>
<title>activityd</title>
<ul>
<li><a href="/console/">/console/</a>: for people
<li><a href="/metrics">/metrics</a>: for Prometheus
<li><a href="/healthz">/healthz</a>: does the process live?
<li><a href="/readyz">/readyz</a>: can it use MySQL and Redis?
</ul>
`)
}

// Shutdown stops listening and waits for the scrapes under way. When ctx ends
// first it cuts them off, without an error.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.Server.Shutdown(ctx) != nil {
		return s.Close()
	}
	return nil
}
