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
	MySQL componentJSON  `json:"mysql"`
	Queue *componentJSON `json:"queue,omitempty"`
	Redis componentJSON  `json:"redis"`
}

type componentJSON struct {
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// healthz reports that the process lives; no restart helps against a database that is away.
func (s *Server) healthz(c echo.Context) error {
	return writeJSON(c, http.StatusOK, typeJSON, struct {
		Status string `json:"status"`
	}{statusOK})
}

// readyz answers 200 as long as reads can be answered, even without the index. Unlike
// other errors, 503 has the same form of body.
func (s *Server) readyz(c echo.Context) error {
	health := s.checkup.ask(c.Request().Context(), s.cfg.Checker)
	code, body := http.StatusOK, readinessJSON{statusOK, componentsJSON{MySQL: newComponent(health.MySQL), Redis: newComponent(health.Redis)}}
	if health.Queue != nil {
		own := newComponent(*health.Queue)
		body.Components.Queue = &own
	}
	switch {
	case !health.MySQL.Usable:
		code, body.Status = http.StatusServiceUnavailable, statusUnavailable
	case !health.Redis.Usable, health.Queue != nil && !health.Queue.Usable:
		body.Status = statusDegraded
	}
	return writeJSON(c, code, typeJSON, body)
}

// checkup caches the result of the Checker: /readyz needs no token, so the Checker is
// called at most once every checkTTL.
type checkup struct {
	mu     sync.Mutex
	at     time.Time
	health Health
}

const checkTTL = 500 * time.Millisecond

func (u *checkup) ask(ctx context.Context, check Checker) Health {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.at) < checkTTL {
		return u.health
	}
	// The result is shared, so it must not depend on the context of this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CheckTimeout)
	defer cancel()
	u.health = check(ctx)
	u.at = time.Now()
	return u.health
}

func newComponent(c Component) componentJSON {
	if c.Usable {
		return componentJSON{statusOK, c.Detail}
	}
	return componentJSON{statusUnavailable, c.Detail}
}
