package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/access"
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

// routeOf names the route of a request by its template, so that paths, which hold
// whatever a client sends, never fill the log or the labels made from it.
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
	if isRefused(status) && verdict != access.Allowed {
		s.Refused(cmp.Or(string(verdict), "unmatched"))
	}
}

func isRefused(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != statusClientGone
}

// requestID takes over the id that a proxy gave, when it is fit for a log.
func requestID(given string) string {
	const most = 64
	if given == "" || len(given) > most {
		return rand.Text()
	}
	for _, b := range []byte(given) {
		if !isIDByte(b) {
			return rand.Text()
		}
	}
	return given
}

func isIDByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '_' || b == '.'
}

// recoverPanic turns a panic into an error with its stack. A handler that aborts
// on purpose is let through: net/http knows what to do.
func recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if cause, ok := value.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
				panic(value)
			}
			err = &panicError{value: value, stack: debug.Stack()}
		}()
		return next(c)
	}
}
