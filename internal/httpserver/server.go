package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Server is a server with its listener. Call Listen, then Serve. Shutdown and Close may be
// called from any goroutine after Listen, and more than once.
type Server struct {
	http     *http.Server
	options  Options
	tls      bool
	listener net.Listener
	name     string // the host that Listen was given

	open               atomic.Int64 // connections
	refusedConnections summary
	refusedRequests    summary
}

// Options are for [New]. Every zero value means its default.
type Options struct {
	// MaxConnections is how many connections may be open at once; further connections are closed
	// at once. Default: 10,000, or half of the files that the process may have open if
	// that is less.
	MaxConnections int
	Log            *slog.Logger // default: slog.Default()
	// Open and Refused count the connections that are open, and the refused ones beyond
	// MaxConnections. Default: no metrics.
	Open    prometheus.Gauge
	Refused prometheus.Counter
}

// New returns a server that does not listen yet. A TLSConfig, which must have a
// certificate, makes it use TLS. New sets the ErrorLog and the ConnState of hs.
func New(hs *http.Server, o Options) *Server {
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultConnections()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Open == nil {
		o.Open = prometheus.NewGauge(prometheus.GaugeOpts{Name: "open"})
	}
	if o.Refused == nil {
		o.Refused = prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	}
	s := &Server{
		http: hs, options: o, tls: hs.TLSConfig != nil, // net/http may set it later
		refusedConnections: summary{log: o.Log.Warn, message: "connections refused", counts: make(map[string]int)},
		refusedRequests:    summary{log: o.Log.Info, message: "requests refused", counts: make(map[string]int)},
	}
	hs.ErrorLog, hs.ConnState = log.New(errorLog{s}, "", 0), s.connState
	return s
}

// Refused counts a refused request by its kind, a constant. The
// counts are logged at the first, and then at most once a minute.
func (s *Server) Refused(kind string) { s.refusedRequests.count(kind, "") }

// Listen opens address (host:port; port 0 picks a free port).
func (s *Server) Listen(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %q: %w", address, err)
	}
	s.listener, s.name = listener, hostname(address)
	return nil
}

// Addr is the address that Listen opened, nil before.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Serve answers requests until Shutdown or Close, and then returns nil at once,
// while Shutdown still waits for the requests under way.
func (s *Server) Serve() error {
	if s.listener == nil {
		return errors.New("cannot serve HTTP: Listen comes first")
	}
	serve := s.http.Serve
	if s.tls {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") } // the certificate is in the configuration
	}
	if err := serve(&bounded{Listener: s.listener, server: s}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting connections and waits for the requests under way. When ctx ends
// first it cuts them off and fails.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("HTTP requests were cut off: %w", err), s.Close())
	}
	return s.Close()
}

// Close stops at once, and cuts off the requests under way.
func (s *Server) Close() error {
	err := s.http.Close()
	if s.listener != nil { // net/http closes it only after Serve
		if closed := s.listener.Close(); !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}
	s.refusedConnections.flush()
	s.refusedRequests.flush()
	return err
}
