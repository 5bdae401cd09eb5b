package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// kind is a kind of problem (RFC 9457). Its slug is part of the API: clients compare
// the type.
type kind struct {
	slug       string
	title      string
	status     int
	retryAfter int // seconds; 0: no header
}

// The kinds of problems, each described in openapi.yaml.
var (
	invalidParameter = kind{slug: "invalid-parameter", title: "Invalid parameter", status: http.StatusBadRequest}
	malformedBody    = kind{slug: "malformed-body", title: "Malformed body", status: http.StatusBadRequest}
	invalidTask      = kind{slug: "invalid-task", title: "Invalid task", status: http.StatusBadRequest}
	invalidEvent     = kind{slug: "invalid-event", title: "Invalid event", status: http.StatusBadRequest}
	invalidBody      = kind{slug: "invalid-body", title: "Invalid body", status: http.StatusBadRequest}
	noToken          = kind{slug: "unauthorized", title: "Unauthorized", status: http.StatusUnauthorized}
	wrongScope       = kind{slug: "insufficient-scope", title: "Insufficient scope", status: http.StatusForbidden}
	noSuchMember     = kind{slug: "no-such-member", title: "No such member", status: http.StatusNotFound}
	noSuchDevice     = kind{slug: "no-such-device", title: "No such device", status: http.StatusNotFound}
	noSuchMute       = kind{slug: "no-such-mute", title: "No such mute", status: http.StatusNotFound}
	noSuchResource   = kind{slug: "not-found", title: "Not found", status: http.StatusNotFound}
	methodNotAllowed = kind{slug: "method-not-allowed", title: "Method not allowed", status: http.StatusMethodNotAllowed}
	bodyTooSlow      = kind{slug: "request-timeout", title: "Request timeout", status: http.StatusRequestTimeout}
	tooManyMutes     = kind{slug: "too-many-mutes", title: "Too many mutes", status: http.StatusConflict}
	leaseLost        = kind{slug: "lease-lost", title: "Lease lost", status: http.StatusConflict}
	bodyTooLarge     = kind{slug: "body-too-large", title: "Body too large", status: http.StatusRequestEntityTooLarge}
	unsupportedType  = kind{slug: "unsupported-media-type", title: "Unsupported media type", status: http.StatusUnsupportedMediaType}
	misdirected      = kind{slug: "misdirected-request", title: "Misdirected request", status: http.StatusMisdirectedRequest}
	keyReused        = kind{slug: "idempotency-key-reused", title: "Idempotency key reused", status: http.StatusUnprocessableEntity}
	tooManyWaiting   = kind{slug: "too-many-waiting-tasks", title: "Too many waiting tasks", status: http.StatusTooManyRequests}
	rateLimited      = kind{slug: "rate-limited", title: "Rate limited", status: http.StatusTooManyRequests}
	internalError    = kind{slug: "internal", title: "Internal error", status: http.StatusInternalServerError}
	pushOff          = kind{slug: "push-off", title: "Push is off", status: http.StatusNotImplemented}
	busy             = kind{slug: "busy", title: "Busy", status: http.StatusServiceUnavailable, retryAfter: 1}
	unavailable      = kind{slug: "unavailable", title: "Unavailable", status: http.StatusServiceUnavailable, retryAfter: 5}
	deadlineExceeded = kind{slug: "deadline-exceeded", title: "Deadline exceeded", status: http.StatusGatewayTimeout}
)

// uri is the problem's type, a reference relative to the API.
func (k kind) uri() string { return "/problems/" + k.slug }

// problem is the body of a response to an error.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"` // of the first fault
	// Errors are all faults of the request, of its parameters and of its tasks.
	Errors strictjson.Faults `json:"errors,omitempty"`

	retryAfter int
	challenge  string // for WWW-Authenticate; "": no header
}

// Error makes a problem the error for a request that is at fault itself.
func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// problem returns a problem of this kind that concerns no field.
func (k kind) problem(format string, args ...any) *problem {
	return &problem{Type: k.uri(), Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...), retryAfter: k.retryAfter}
}

// fields returns a problem of this kind with faults of fields.
func (k kind) fields(f strictjson.Faults) *problem {
	p := k.problem("%s: %s", f[0].Field, f[0].Detail)
	if more := len(f) - 1; more > 0 {
		p.Detail += fmt.Sprintf(" (and %d more)", more)
	}
	p.Field, p.Errors = f[0].Field, f
	return p
}

// maxRetryAfter is the end of the jitter of Retry-After: clients that are refused together are not to
// come back together.
func (p *problem) maxRetryAfter() int {
	if p.Status == http.StatusServiceUnavailable {
		return 2 * p.retryAfter
	}
	return p.retryAfter
}

func (p *problem) write(c echo.Context) error {
	if p.retryAfter > 0 {
		after := p.retryAfter + rand.IntN(p.maxRetryAfter()-p.retryAfter+1)
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(after))
	}
	if p.challenge != "" {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, p.challenge)
	}
	return writeJSON(c, p.Status, typeProblem, p)
}

// writeJSON encodes before it writes, so that a value that cannot be encoded becomes an
// error response.
func writeJSON(c echo.Context, status int, contentType string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	return c.Blob(status, contentType, body)
}

// tooManyReads is the detail of [busy] for a read.
const tooManyReads = "more is asked at once than can be answered; try again after Retry-After seconds"

// statusClientGone is the status in the log of a request whose client left before the
// answer.
const statusClientGone = 499

// outcomes maps errors to problems. The first row that matches counts; an error that
// matches none is an internal error.
var outcomes = []struct {
	err    error
	kind   kind
	field  string
	detail string
}{
	{contacts.ErrNoMember, noSuchMember, "id", "no member has this id"},
	{queue.ErrKeyReused, keyReused, headerKey, "this key was used for other tasks; nothing was enqueued, use a fresh key for what is new"},
	{queue.ErrLeaseLost, leaseLost, "", "no lease of this queue has this token now: it ran out, or all of its tasks were finished; nothing was changed"},
	{admit.ErrBusy, busy, "", tooManyReads},
	{mysql.ErrBusy, busy, "", "the database has no connection to spare; try again in a second"},
	{mysql.ErrUnavailable, unavailable, "", "the database cannot be reached; try again in a few seconds"},
	{context.DeadlineExceeded, deadlineExceeded, "", "the answer was not ready in time"}, // see repeating
	// A shutdown, or work shared with a request that was cancelled; that the request's own
	// client left is handled before.
	{context.Canceled, unavailable, "", "the request was interrupted; try again"},
	{echo.ErrNotFound, noSuchResource, "", "there is nothing at this path; see /openapi.yaml"},
	{echo.ErrMethodNotAllowed, methodNotAllowed, "", "this path does not take this method; the Allow header says which it takes"},
}

// problemOf returns the problem for err. It considers the request's context
// too, because a driver whose context ended may report that by an error of its own.
func problemOf(ctx context.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if r, ok := errors.AsType[*auth.RefusalError](err); ok {
		return problemOfRefusal(r)
	}
	for _, err := range []error{err, ctx.Err()} {
		for _, o := range outcomes {
			if errors.Is(err, o.err) {
				p := o.kind.problem("%s", o.detail)
				if o.field != "" {
					p.Field, p.Errors = o.field, strictjson.Faults{{Field: o.field, Detail: o.detail}}
				}
				return p
			}
		}
	}
	if mysql.Refusal(err) != "" { // until somebody mends a setting, without a restart
		return unavailable.problem("the database refuses activityd; its log has the reason")
	}
	return internalError.problem("something went wrong on our side; the log has the details under the request's X-Request-Id")
}

// writeError is the only place where an error becomes a response.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return // too late; the log has the error
	}
	ctx := c.Request().Context()
	// A refusal is sent all the same: net/http cancels the context of a request
	// whose body is late, and that client waits for an answer.
	_, refused := errors.AsType[*problem](err)
	_, forbidden := errors.AsType[*auth.RefusalError](err)
	if !refused && !forbidden && errors.Is(ctx.Err(), context.Canceled) {
		_ = c.NoContent(statusClientGone)
		return
	}
	p := problemOf(ctx, err)
	if p.Type == deadlineExceeded.uri() {
		p.Detail += "; " + repeating(c.Request())
	}
	if allow := c.Response().Header().Get(echo.HeaderAllow); strings.HasSuffix(allow, http.MethodGet) || strings.Contains(allow, http.MethodGet+",") {
		c.Response().Header().Set(echo.HeaderAllow, allow+", "+http.MethodHead) // see begin
	}
	if isForViewers(c.Request()) {
		p = p.concealed()
	}
	if err := p.write(c); err != nil {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "cannot write an error response", slog.Any("error", err))
	}
}

// repeating says, for a request that may or may not have been carried out, whether it may be
// sent again.
func repeating(r *http.Request) string {
	if r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, pathOfQueues) && r.Header.Get(headerKey) == "" {
		return "the request may have been carried out, and without an Idempotency-Key a repetition is another one"
	}
	return "repeating the request is safe"
}

// logLevel is debug for answered requests, as metrics count them, for clients
// that left, for refused requests and for requests without a scope, as of probes.
func logLevel(status int, verdict auth.Verdict, isBusy bool) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case isBusy || verdict != auth.Allowed || status == statusClientGone || status < http.StatusBadRequest:
		return slog.LevelDebug
	case status > http.StatusInternalServerError:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
