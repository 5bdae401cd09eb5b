package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
)

// ProblemTypes are the types of all problems.
func ProblemTypes() []string {
	kinds := []kind{
		invalidParameter, malformedBody, invalidTask, invalidEvent, invalidBody, noToken, wrongScope,
		noSuchMember, noSuchDevice, noSuchMute, noSuchResource, methodNotAllowed, bodyTooSlow, tooManyMutes, leaseLost,
		bodyTooLarge, unsupportedType, misdirected, keyReused, tooManyWaiting, rateLimited,
		internalError, pushOff, busy, unavailable, deadlineExceeded,
	}
	return each(kinds, kind.uri)
}

// Routes are the routes of the server.
func (s *Server) Routes() []*echo.Route { return s.echo.Routes() }

// Turns returns how many queues have claims that wait.
func (s *Server) Turns() int {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	return len(s.waiters.turns)
}

// Probe adds a route whose handler reports whether the client is an operator.
func (s *Server) Probe(path string, need auth.Scope, report func(operator bool)) {
	s.add(route{method: http.MethodGet, path: path, need: need, handle: func(_ *Server, k *call) (any, error) {
		report(s.isOperator(k))
		return nil, nil
	}})
}
