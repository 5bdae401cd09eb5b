package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
)

// The statuses of /readyz. A component is never degraded, the service may be.
const (
	statusOK          = "ok"
	statusDegraded    = "degraded"
	statusUnavailable = "unavailable"
)

type readinessJSON struct {
	Status     string         `json:"status"`
	Components componentsJSON `json:"components"`
}

type componentsJSON struct {
	MySQL componentJSON `json:"mysql"`
	Redis componentJSON `json:"redis"`
}

type componentJSON struct {
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// healthz says that the process lives and nothing more: restarting it would not
// cure a database that is away.
func (s *Server) healthz(c echo.Context) error {
	return writeJSON(c, http.StatusOK, typeJSON, struct {
		Status string `json:"status"`
	}{statusOK})
}

// readyz answers 200 as long as reads can be answered, be it without the index.
// Both statuses have one form of body, unlike other errors, because what reads
// it wants the components in either case.
func (s *Server) readyz(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.CheckTimeout)
	defer cancel()
	code, body := readiness(s.cfg.Checker(ctx))
	return writeJSON(c, code, typeJSON, body)
}

func readiness(h Health) (int, readinessJSON) {
	body := readinessJSON{statusOK, componentsJSON{newComponent(h.MySQL), newComponent(h.Redis)}}
	switch {
	case !h.MySQL.Usable:
		body.Status = statusUnavailable
		return http.StatusServiceUnavailable, body
	case !h.Redis.Usable:
		body.Status = statusDegraded
	}
	return http.StatusOK, body
}

func newComponent(c Component) componentJSON {
	if c.Usable {
		return componentJSON{statusOK, c.Detail}
	}
	return componentJSON{statusUnavailable, c.Detail}
}
