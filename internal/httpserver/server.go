package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Server is a server with its listener. Call Listen, then Serve. Shutdown and
// Close may be called from any goroutine once Listen has returned, and more than
// once.
type Server struct {
	http     *http.Server
	secure   bool
	listener net.Listener
	name     string // what Listen was asked to listen on
}

// New returns a server that does not listen yet. With a TLSConfig, which must have
// a certificate, it speaks TLS.
func New(s *http.Server) *Server {
	return &Server{http: s, secure: s.TLSConfig != nil} // net/http may set one later
}

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
	if s.secure {
		return s.http.ServeTLS(s.listener, "", "") // the certificate is in the configuration
	}
	return s.http.Serve(s.listener)
}

// Shutdown stops accepting connections and waits for the requests under way. When
// ctx ends first it cuts them off and says so.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("HTTP requests were cut off: %w", err), s.Close())
	}
	return s.closeListener()
}

// Close stops at once, and cuts off the requests under way.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), s.closeListener())
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
