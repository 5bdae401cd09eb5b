package api

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/access"
)

// Access decides who may do what. Check finds whom a secret belongs to, and counts
// the request: once, however many tasks it brings, whose number has limits of its
// own. It returns [access.ErrUnknown] for a secret of nobody, and the caller with
// an [access.ScopeError] or an [access.LimitError] when the request may not be. It
// must not wait, and must be safe for concurrent use.
type Access interface {
	Check(secret string, need access.Scope) (access.Caller, error)
}

// callerKey is where an [echo.Context] keeps the caller.
const callerKey = "activityd.caller"

// require lets only those requests through that bear a token with the scope. It
// comes before anything is read but the header, so that a stranger costs little.
// Without [Config.Access] everybody may ask.
func (s *Server) require(need access.Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		if s.cfg.Access == nil {
			return next
		}
		return func(c echo.Context) error {
			secret, err := bearer(c.Request().Header)
			if err != nil {
				return err
			}
			caller, err := s.cfg.Access.Check(secret, need)
			c.Set(callerKey, caller) // of a refused request, too: the log names it
			if err != nil {
				return refuseCaller(err)
			}
			return next(c)
		}
	}
}

// callerOf returns who asks; the zero Caller where nobody has to say.
func callerOf(c echo.Context) access.Caller {
	caller, _ := c.Get(callerKey).(access.Caller)
	return caller
}

// isOperator tells whether the caller may see what a viewer may not: whom a block
// hides, and when somebody uploaded what is not visible. Where there are no
// tokens nobody is: who sits on the same machine is not yet trusted with that.
func isOperator(c echo.Context) bool { return callerOf(c).Scopes.Has(access.Admin) }

// bearer returns the secret of a request (RFC 6750, 2.1).
func bearer(header http.Header) (string, error) {
	given := header.Values(echo.HeaderAuthorization)
	if len(given) > 1 {
		return "", unauthorized("invalid_token", "the Authorization header is given more than once")
	}
	if len(given) == 1 {
		scheme, secret, _ := strings.Cut(given[0], " ")
		if secret = strings.Trim(secret, " "); strings.EqualFold(scheme, "Bearer") && secret != "" {
			return secret, nil
		}
	}
	return "", unauthorized("", "send the header Authorization: Bearer, followed by the secret of a token")
}

// refuseCaller says no to a request whose caller may not make it.
func refuseCaller(err error) error {
	if errors.Is(err, access.ErrUnknown) {
		return unauthorized("invalid_token", "no token has this secret; it may have been revoked")
	}
	if e, ok := errors.AsType[*access.ScopeError](err); ok {
		p := wrongScope.problem(e.Error())
		p.challenge = challenge("insufficient_scope") + `, scope="` + e.Need.String() + `"`
		return &refusal{p}
	}
	if e, ok := errors.AsType[*access.LimitError](err); ok {
		p := rateLimited.problem("this token's limit of requests is used up; send the same again later")
		p.retryAfter = wholeSeconds(e.RetryAfter)
		return &refusal{p}
	}
	return err
}

func unauthorized(code, detail string) error {
	p := noToken.problem(detail)
	p.challenge = challenge(code)
	return &refusal{p}
}

// challenge is the value of WWW-Authenticate (RFC 6750, 3). A request that bears
// nothing gets no code.
func challenge(code string) string {
	const plain = `Bearer realm="activityd"`
	if code == "" {
		return plain
	}
	return plain + `, error="` + code + `"`
}

// wholeSeconds is for Retry-After, which knows no fractions. Zero would be an
// invitation to hurry.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
