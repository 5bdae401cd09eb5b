package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
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
	retryAfter int // seconds; 0: no such header
}

// The kinds of problems, each described in openapi.yaml.
var (
	invalidParameter = kind{slug: "invalid-parameter", title: "Invalid parameter", status: http.StatusBadRequest}
	malformedBody    = kind{slug: "malformed-body", title: "Malformed body", status: http.StatusBadRequest}
	invalidTask      = kind{slug: "invalid-task", title: "Invalid task", status: http.StatusBadRequest}
	noToken          = kind{slug: "unauthorized", title: "Unauthorized", status: http.StatusUnauthorized}
	wrongScope       = kind{slug: "insufficient-scope", title: "Insufficient scope", status: http.StatusForbidden}
	noSuchMember     = kind{slug: "no-such-member", title: "No such member", status: http.StatusNotFound}
	noSuchResource   = kind{slug: "not-found", title: "Not found", status: http.StatusNotFound}
	methodNotAllowed = kind{slug: "method-not-allowed", title: "Method not allowed", status: http.StatusMethodNotAllowed}
	bodyTooSlow      = kind{slug: "request-timeout", title: "Request timeout", status: http.StatusRequestTimeout}
	bodyTooLarge     = kind{slug: "body-too-large", title: "Body too large", status: http.StatusRequestEntityTooLarge}
	unsupportedType  = kind{slug: "unsupported-media-type", title: "Unsupported media type", status: http.StatusUnsupportedMediaType}
	misdirected      = kind{slug: "misdirected-request", title: "Misdirected request", status: http.StatusMisdirectedRequest}
	keyReused        = kind{slug: "idempotency-key-reused", title: "Idempotency key reused", status: http.StatusUnprocessableEntity}
	tooManyWaiting   = kind{slug: "too-many-waiting-tasks", title: "Too many waiting tasks", status: http.StatusTooManyRequests}
	rateLimited      = kind{slug: "rate-limited", title: "Rate limited", status: http.StatusTooManyRequests}
	internalError    = kind{slug: "internal", title: "Internal error", status: http.StatusInternalServerError}
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
	Field  string `json:"field,omitempty"`  // of the first fault
	Errors faults `json:"errors,omitempty"` // all faults that were found

	retryAfter int
	challenge  string // for WWW-Authenticate; "": no such header
}

// problem returns a problem of this kind that concerns no field.
func (k kind) problem(detail string) problem {
	return problem{Type: k.uri(), Title: k.title, Status: k.status, Detail: detail, retryAfter: k.retryAfter}
}

// refusal is the error for a request that is at fault itself.
type refusal struct{ problem problem }

func (r *refusal) Error() string { return r.problem.Title + ": " + r.problem.Detail }

// refuse refuses a request for a reason that concerns it as a whole.
func refuse(k kind, format string, args ...any) error {
	return &refusal{k.problem(fmt.Sprintf(format, args...))}
}

// refuseFields refuses a request for the faults of its fields, of which there is at
// least one.
func refuseFields(k kind, f faults) error {
	p := k.problem(f[0].Field + ": " + f[0].Detail)
	if more := len(f) - 1; more > 0 {
		p.Detail += fmt.Sprintf(" (and %d more)", more)
	}
	p.Field, p.Errors = f[0].Field, f
	return &refusal{p}
}

func (p problem) write(c echo.Context) error {
	if p.retryAfter > 0 {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(p.retryAfter))
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
