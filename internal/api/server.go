package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/access"
	"github.com/activityd/activityd/internal/httpserver"
)

// Server serves the API on one address. Call Listen, then Serve; Shutdown may be
// called from any goroutine once Listen has returned, and more than once.
type Server struct {
	*httpserver.Server

	cfg     Config
	echo    *echo.Echo
	checkup checkup
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
	s.Server = httpserver.New(&http.Server{
		Handler:           s.echo,
		MaxHeaderBytes:    cfg.MaxHeader,
		ReadHeaderTimeout: cfg.ReadTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      max(cfg.RequestTimeout, cfg.ReadTimeout) + writeGrace,
		IdleTimeout:       cfg.IdleTimeout,
		TLSConfig:         cfg.TLS,
	}, httpserver.Options{MaxConnections: cfg.MaxConnections, Log: cfg.Logger, Open: connections, Refused: connectionsRefused})
	return s
}

func (s *Server) route() {
	s.echo.GET("/v1/users/:id/recent-contact-photos", s.recentContactPhotos, s.require(access.Read))
	s.echo.POST("/v1/tasks", s.enqueueTasks, s.require(access.Write))
	// What follows is open, under any name: load balancers have no tokens and call
	// the server as they like, and there is nothing in it that is not in the source.
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
