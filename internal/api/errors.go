package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// statusClientGone is what the log says of a request whose client went away
// before the answer. Nobody receives it.
const statusClientGone = 499

// outcomes says which problem an error is for the client. The first row that
// matches counts. What is not here is an internal error.
var outcomes = []struct {
	err    error
	kind   kind
	field  string
	detail string
}{
	{contacts.ErrNoMember, noSuchMember, "id", "no member has this id"},
	{tasks.ErrKeyReused, keyReused, headerKey, "this key was used for other tasks; nothing was enqueued, use a fresh key for what is new"},
	{recent.ErrBusy, busy, "", "too many expensive reads are under way; try again in a second"},
	{mysql.ErrUnavailable, unavailable, "", "the database cannot be reached; try again in a few seconds"},
	{context.DeadlineExceeded, deadlineExceeded, "", "the answer was not ready in time; repeating the request is safe"},
	// Its own client's leaving is handled before; what remains is work shared
	// with a request that was given up, or cut off by a shutdown.
	{context.Canceled, unavailable, "", "the request was interrupted; try again"},
	{echo.ErrNotFound, noSuchResource, "", "there is nothing at this path; see /openapi.yaml"},
	{echo.ErrMethodNotAllowed, methodNotAllowed, "", "this path does not take this method; the Allow header says which it takes"},
}

// problemOf finds the problem that err is. The request's own context is asked
// too, because a driver whose context ended may report that in words of its own.
func problemOf(ctx context.Context, err error) problem {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.problem
	}
	if p, ok := lookUp(err); ok {
		return p
	}
	if p, ok := lookUp(ctx.Err()); ok {
		return p
	}
	return internalError.problem("something went wrong on our side; the log has the details under the request's X-Request-Id")
}

func lookUp(err error) (problem, bool) {
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			p := o.kind.problem(o.detail)
			if o.field != "" {
				p.Field, p.Errors = o.field, faults{{Field: o.field, Detail: o.detail}}
			}
			return p, true
		}
	}
	return problem{}, false
}

// writeError is the one place where an error becomes a response.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return // too late to say anything; the log has the error
	}
	ctx := c.Request().Context()
	// A refusal is sent all the same: net/http cancels the context of a request
	// whose body is late, and that client waits for an answer.
	if _, refused := errors.AsType[*refusal](err); !refused && errors.Is(ctx.Err(), context.Canceled) {
		_ = c.NoContent(statusClientGone)
		return
	}
	if err := problemOf(ctx, err).write(c); err != nil {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "cannot write an error response", slog.Any("error", err))
	}
}

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// logLevel keeps the log quiet about clients who left and about requests that were
// not let through or that anybody may make, such as probes, and loud about what is
// broken.
func logLevel(status int, verdict auth.Verdict) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case verdict != auth.Allowed || status == statusClientGone:
		return slog.LevelDebug
	case status > http.StatusInternalServerError:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
