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

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/auth"
)

// observe surrounds every request, also a request without a route: it sets an id, sends the response to an error,
// counts, and logs a line.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		k := &call{Context: c, start: time.Now()}
		response := c.Response()
		defer func() { countRequest(c.Request().Method, routeOf(c), response.Status, time.Since(k.start)) }()
		id := setHeader(response.Header(), c.Request())
		s.allowOrigin(response.Header(), c.Request())
		err := next(k)
		if err != nil && !response.Committed {
			s.writeError(err, k)
		}
		s.logRequest(k, id, time.Since(k.start), err)
		return nil
	}
}

// setHeader sets the fields of every response, and returns the id of the request.
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
	variesBy        = []string{"Origin, Authorization"}
	exposed         = []string{"ETag, Retry-After, X-Request-Id"}
)

// plainID matches the request ids of a proxy that are kept.
var plainID = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`)

// routeOf returns the template of the route of a request, for the log and for labels. The
// path itself may hold anything.
func routeOf(c echo.Context) string { return cmp.Or(c.Path(), "unmatched") }

func (s *Server) logRequest(k *call, id string, took time.Duration, err error) {
	status, verdict, ctx := k.Response().Status, k.access.verdict, k.Request().Context()
	isBusy := errors.Is(err, admit.ErrBusy)
	refused := status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != statusClientGone
	switch {
	case isBusy:
		s.Refused("busy")
	case refused && verdict != auth.Allowed:
		s.Refused(cmp.Or(string(verdict), "unmatched"))
	}
	level := logLevel(status, verdict, isBusy)
	if !s.cfg.Logger.Enabled(ctx, level) {
		return // most requests have the level debug
	}
	attrs := []slog.Attr{
		slog.String("method", k.Request().Method),
		slog.String("route", routeOf(k)),
		slog.Int("status", status),
		slog.Duration("duration", took),
		slog.String("request_id", id),
	}
	if name := k.access.caller.Name; name != "" {
		attrs = append(attrs, slog.String("caller", name))
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

// recovered turns a panic into an error with its stack, but not http.ErrAbortHandler,
// as that is for net/http.
func recovered(handle func() error) (err error) {
	defer func() {
		switch value := recover(); value {
		case nil:
		case http.ErrAbortHandler:
			panic(value)
		default:
			err = &panicError{value: value, stack: debug.Stack()}
		}
	}()
	return handle()
}
