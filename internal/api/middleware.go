package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/recent"
)

// observe surrounds every request that [Server.admit] lets in, also one that matches no route: it
// sets an id, sends the response to an error, counts, and logs one line.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := arrivalOf(c.Request()).at
		defer func() {
			countRequest(c.Request().Method, routeOf(c), c.Response().Status, time.Since(start))
		}()
		id := setHeader(c.Response().Header(), c.Request())
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		s.logRequest(c, id, time.Since(start), err)
		return nil
	}
}

// setHeader sets what every response has, and returns the id of the request.
func setHeader(header http.Header, r *http.Request) (id string) {
	id = r.Header.Get(echo.HeaderXRequestID)
	if id == "" || !plainID.MatchString(id) {
		id = strconv.FormatUint(rand.Uint64(), 36)
	}
	header[echo.HeaderXRequestID] = []string{id}
	header[echo.HeaderCacheControl] = noStore
	header[echo.HeaderXContentTypeOptions] = noSniff
	return id
}

// Values of headers that are shared, as nothing changes them in place.
var (
	closeConnection = []string{"close"}
	noStore         = []string{"no-store"}
	noSniff         = []string{"nosniff"}
	typeOfProblem   = []string{typeProblem}
	variesBy        = []string{"Origin, Authorization"}
	exposed         = []string{"ETag, Retry-After, X-Request-Id"}
)

// plainID matches the request ids of a proxy that are kept.
var plainID = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`)

// routeOf returns the template of the route of a request, for the log and for labels. The
// path itself may hold anything.
func routeOf(c echo.Context) string {
	if route := c.Path(); route != "" {
		return route
	}
	return "unmatched"
}

func (s *Server) logRequest(c echo.Context, id string, took time.Duration, err error) {
	route, status, verdict, ctx := routeOf(c), c.Response().Status, accessOf(c).verdict, c.Request().Context()
	isBusy := errors.Is(err, recent.ErrBusy)
	refused := status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != statusClientGone
	switch {
	case isBusy:
		s.Refused("busy")
	case refused && verdict != auth.Allowed:
		s.Refused(cmp.Or(string(verdict), "unmatched"))
	}
	level := logLevel(status, verdict, isBusy)
	if !s.cfg.Logger.Enabled(ctx, level) {
		return // there are many, and most are at the level debug
	}
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
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	s.cfg.Logger.LogAttrs(ctx, level, "request", attrs...)
}

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

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
