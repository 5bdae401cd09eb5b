package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/access"
)

// Server serves the API on one address. Call Listen, then Serve; Shutdown may be
// called from any goroutine once Listen has returned, and more than once.
type Server struct {
	cfg      Config
	echo     *echo.Echo
	http     *http.Server
	listener net.Listener
	checkup  checkup
}

// New builds a Server that does not listen yet. It panics when a required part
// of cfg is missing.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, echo: echo.New()}
	s.echo.HideBanner = true
	s.echo.HidePort = true
	s.echo.HTTPErrorHandler = s.writeError
	s.echo.Use(s.observe, recoverPanic)
	s.route()
	s.http = &http.Server{
		Handler:           s.echo,
		MaxHeaderBytes:    cfg.MaxHeader,
		ReadHeaderTimeout: cfg.ReadTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      max(cfg.RequestTimeout, cfg.ReadTimeout) + writeGrace,
		IdleTimeout:       cfg.IdleTimeout,
		TLSConfig:         cfg.TLS,
		ErrorLog:          newErrorLog(cfg.Logger),
	}
	return s
}

func (s *Server) route() {
	s.echo.GET("/v1/users/:id/recent-contact-photos", s.recentContactPhotos, s.require(access.Read))
	s.echo.POST("/v1/tasks", s.enqueueTasks, s.require(access.Write))
	// What follows is open: load balancers have no tokens, and there is nothing
	// in it that is not in the source.
	for _, method := range []string{http.MethodGet, http.MethodHead} { // load balancers like HEAD
		s.echo.Add(method, "/healthz", s.healthz)
		s.echo.Add(method, "/readyz", s.readyz)
	}
	s.echo.GET("/openapi.yaml", s.openAPI)
}

// Handler returns the API as a handler, for a program that serves it beside
// other pages from a server of its own. The limits on header and connection are
// that server's business then.
func (s *Server) Handler() http.Handler { return s.echo }

// Listen opens address (host:port; port 0 picks a free one), so that a port
// that is taken is an error at start.
func (s *Server) Listen(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %q: %w", address, err)
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

// Serve answers requests until Shutdown, and then returns nil at once, while
// Shutdown still waits for the requests under way.
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
	if s.cfg.TLS != nil {
		return s.http.ServeTLS(s.listener, "", "") // the certificate is in the configuration
	}
	return s.http.Serve(s.listener)
}

// Shutdown stops accepting connections and waits for the requests under way.
// When ctx ends first it cuts them off and says so.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if s.listener != nil {
		// Serve closes its listener, but it may never have been called.
		_ = s.listener.Close()
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("HTTP requests were cut off: %w", err), s.http.Close())
}
