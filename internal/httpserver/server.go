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

// Server is a server with its listener. Call Listen, then Serve. Shutdown and
// Close may be called from any goroutine once Listen has returned, and more than
// once.
type Server struct {
	http     *http.Server
	options  Options
	secure   bool
	listener net.Listener
	name     string // what Listen was asked to listen on

	open               atomic.Int64 // connections
	refusedConnections summary
	refusedRequests    summary
}

// Options are those of [New]. Every zero value means its default.
type Options struct {
	// MaxConnections is how many connections may be open at once; one more is closed
	// as it comes. Default: 10,000, or half of the files that the process may have
	// open if that is less.
	MaxConnections int
	Log            *slog.Logger // default: slog.Default()
	// Open and Refused count the connections that are open, and those that were one
	// too many. Default: they are not shown.
	Open    prometheus.Gauge
	Refused prometheus.Counter
}

// New returns a server that does not listen yet. With a TLSConfig, which must have
// a certificate, it speaks TLS. Its ErrorLog and its ConnState are set here.
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
		http: hs, options: o, secure: hs.TLSConfig != nil, // net/http may set one later
		refusedConnections: summary{log: o.Log.Warn, message: "connections refused"},
		refusedRequests:    summary{log: o.Log.Info, message: "requests refused"},
	}
	hs.ErrorLog, hs.ConnState = log.New(errorLog{s}, "", 0), s.connState
	return s
}

// Refused counts a request of a client that is not known. What strangers send fills
// no log: the first of them and then at most one line a minute says how many there
// were of each kind, which is one of a few constants.
func (s *Server) Refused(kind string) { s.refusedRequests.count(kind, "") }

// Listen opens address (host:port; port 0 picks a free one), so that a port that
// is taken is an error at the start.
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
	if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

func (s *Server) serve() error {
	listener := bounded{s.listener, s}
	if s.secure {
		return s.http.ServeTLS(listener, "", "") // the certificate is in the configuration
	}
	return s.http.Serve(listener)
}

// Shutdown stops accepting connections and waits for the requests under way. When
// ctx ends first it cuts them off and says so.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.flush()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("HTTP requests were cut off: %w", err), s.Close())
	}
	return s.closeListener()
}

// Close stops at once, and cuts off the requests under way.
func (s *Server) Close() error {
	defer s.flush()
	return errors.Join(s.http.Close(), s.closeListener())
}

// flush tells what was counted and not told yet.
func (s *Server) flush() {
	s.refusedConnections.flush()
	s.refusedRequests.flush()
}

// closeListener is for a listener that was never served from: net/http closes the
// others itself.
func (s *Server) closeListener() error {
	if s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
