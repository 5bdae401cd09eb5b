package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
)

// observe surrounds every request, those that match no route included: it gives
// it a deadline and an id, sends the response to an error, and logs one line. It
// is one middleware because the context must not end before the error is judged.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.RequestTimeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		requestsInFlight.Inc()
		defer func() {
			requestsInFlight.Dec()
			countRequest(c.Request().Method, routeOf(c), c.Response().Status, time.Since(start))
		}()
		id := requestID(c.Request().Header.Get(echo.HeaderXRequestID))
		header := c.Response().Header()
		header.Set(echo.HeaderXRequestID, id)
		header.Set(echo.HeaderCacheControl, "no-store")
		header.Set(echo.HeaderXContentTypeOptions, "nosniff")
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		s.logRequest(c, id, time.Since(start), err)
		return nil
	}
}

// routeOf returns the template of the route of a request. The path itself, which may hold
// anything, goes neither to the log nor to labels.
func routeOf(c echo.Context) string {
	if route := c.Path(); route != "" {
		return route
	}
	return "unmatched"
}

func (s *Server) logRequest(c echo.Context, id string, took time.Duration, err error) {
	route, status := routeOf(c), c.Response().Status
	attrs := []slog.Attr{
		slog.String("method", c.Request().Method),
		slog.String("route", route),
		slog.Int("status", status),
		slog.Duration("duration", took),
		slog.String("request_id", id),
	}
	if caller := callerOf(c); caller.Name != "" {
		attrs = append(attrs, slog.String("caller", caller.Name))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	if p := (*panicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	verdict := verdictOf(c)
	s.cfg.Logger.LogAttrs(c.Request().Context(), logLevel(status, verdict), "request", attrs...)
	refused := status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != statusClientGone
	if refused && verdict != auth.Allowed {
		s.Refused(cmp.Or(string(verdict), "unmatched"))
	}
}

// plainID is what a request id from elsewhere must look like to be logged.
var plainID = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`)

// requestID returns the id that a proxy gave, if it is plain, or else a random one.
func requestID(given string) string {
	if plainID.MatchString(given) {
		return given
	}
	return rand.Text()
}

// recoverPanic turns a panic into an error with its stack, but not http.ErrAbortHandler,
// which is for net/http.
func recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch value := recover(); value {
			case nil:
			case http.ErrAbortHandler:
				panic(value)
			default:
				err = &panicError{value: value, stack: debug.Stack()}
			}
		}()
		return next(c)
	}
}
