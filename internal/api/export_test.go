package api

import "github.com/labstack/echo/v4"

// ProblemTypes are the types of all problems.
func ProblemTypes() []string {
	kinds := []kind{
		invalidParameter, malformedBody, invalidTask, noSuchMember, noSuchResource, methodNotAllowed, bodyTooSlow,
		bodyTooLarge, unsupportedType, keyReused, tooManyWaiting, internalError, busy, unavailable, deadlineExceeded,
	}
	return each(kinds, kind.uri)
}

// Routes are the routes of the server.
func (s *Server) Routes() []*echo.Route { return s.echo.Routes() }
