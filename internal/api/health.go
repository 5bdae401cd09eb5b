package api

import (
	"context"
	"net/http"
	"sync"
	"time"

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
	code, body := readiness(s.checkup.ask(c.Request().Context(), s.cfg))
	return writeJSON(c, code, typeJSON, body)
}

// checkup is the last word of the Checker. Anybody may ask for it, token or not, so
// it is asked for once at a time, and seldom.
type checkup struct {
	mu     sync.Mutex
	at     time.Time
	health Health
}

// checkTrust is how long the last word is good for.
const checkTrust = 500 * time.Millisecond

func (u *checkup) ask(ctx context.Context, cfg Config) Health {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.at) < checkTrust {
		return u.health
	}
	// Others will be told the same: it must not depend on whether this one waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.CheckTimeout)
	defer cancel()
	u.health = cfg.Checker(ctx)
	u.at = time.Now()
	return u.health
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
