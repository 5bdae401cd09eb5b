package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
)

// Authorizer finds the caller that a secret belongs to, and takes the request from the
// caller's rate limit, once however many tasks it has. It returns [auth.ErrUnknown] for an
// unknown secret, and the caller with an [auth.ScopeError] or an [auth.LimitError] when
// the request is not allowed. It must not wait, and must be safe for concurrent use.
type Authorizer interface {
	Check(secret string, need auth.Scope) (auth.Caller, error)
}

// The keys of the caller and of the verdict on the request in an [echo.Context].
const (
	callerKey  = "activityd.caller"
	verdictKey = "activityd.verdict"
)

// require allows only requests with a token of the scope or, without [Config.Auth], for a
// Host that the server knows. It comes before the body is read.
func (s *Server) require(need auth.Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			caller, verdict, err := s.authorize(c.Request(), need)
			c.Set(callerKey, caller) // also for the log of a refused request
			c.Set(verdictKey, verdict)
			auth.CountRequest(caller.Name, verdict)
			if err != nil {
				return err
			}
			return next(c)
		}
	}
}

func (s *Server) authorize(r *http.Request, need auth.Scope) (auth.Caller, auth.Verdict, error) {
	if s.cfg.Auth == nil && s.Knows(r.Host) {
		return auth.Caller{}, auth.Allowed, nil
	}
	if s.cfg.Auth == nil {
		return auth.Caller{}, auth.ForeignHost, misdirected.problem("%s, or give the server tokens: activityd serve --token-file", httpserver.Misdirected(r.Host))
	}
	secret, err := bearer(r.Header, "a token or its secret")
	if err != nil {
		return auth.Caller{}, auth.NoToken, err
	}
	caller, err := s.cfg.Auth.Check(secret, need)
	if err == nil {
		return caller, auth.Allowed, nil
	}
	if errors.Is(err, auth.ErrUnknown) {
		return caller, auth.UnknownToken, unauthorized("invalid_token", "no token has this secret; it may have been revoked")
	}
	if e, ok := errors.AsType[*auth.ScopeError](err); ok {
		return caller, auth.WrongScope, scopeProblem(e.Error(), e.Need)
	}
	if e, ok := errors.AsType[*auth.LimitError](err); ok {
		return caller, auth.OverLimit, overLimit("this token's", e)
	}
	return caller, "", err // an internal error
}

func overLimit(whose string, e *auth.LimitError) *problem {
	p := rateLimited.problem("%s limit of requests is used up; send the same again later", whose)
	p.retryAfter = wholeSeconds(e.RetryAfter)
	return p
}

// callerOf returns the caller of a request; the zero Caller where there are no tokens.
func callerOf(c echo.Context) auth.Caller {
	caller, _ := c.Get(callerKey).(auth.Caller)
	return caller
}

// verdictOf returns whether the request was let through; "" where it needed no scope.
func verdictOf(c echo.Context) auth.Verdict {
	verdict, _ := c.Get(verdictKey).(auth.Verdict)
	return verdict
}

// isOperator reports whether the caller may see how an answer was found: source, times and
// explanation. They depend on photos that the viewer may not see: a private upload at a
// chosen date turns an answer by the index into one by a walk. Operators have tokens with
// the scope admin; where there are no tokens, they are the clients on this machine.
func (s *Server) isOperator(c echo.Context) bool {
	if s.cfg.Auth != nil {
		return callerOf(c).Scopes.Has(auth.Admin)
	}
	return isLocal(c.Request())
}

// forwarding are headers of forwarded requests.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// isLocal reports whether a request comes from this machine and was not forwarded. A proxy
// on this machine that sends none of the headers is indistinguishable from a client.
func isLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback() &&
		!slices.ContainsFunc(forwarding, func(name string) bool { return r.Header[name] != nil })
}

// bearer returns the secret of a request (RFC 6750, 2.1); what names it in an error.
func bearer(header http.Header, what string) (string, error) {
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
	return "", unauthorized("", "send the header Authorization: Bearer, followed by "+what)
}

// plainChallenge is the value of WWW-Authenticate (RFC 6750, 3) for a request without a
// token.
const plainChallenge = `Bearer realm="activityd"`

// scopeProblem is for a request that needs a scope which its caller does not have.
func scopeProblem(detail string, need auth.Scope) *problem {
	p := wrongScope.problem("%s", detail)
	p.challenge = fmt.Sprintf(`%s, error="insufficient_scope", scope=%q`, plainChallenge, need.String())
	return p
}

// unauthorized is for a request without a usable token; code is "" where it has none.
func unauthorized(code, detail string) *problem {
	p := noToken.problem("%s", detail)
	p.challenge = plainChallenge
	if code != "" {
		p.challenge += fmt.Sprintf(`, error=%q`, code)
	}
	return p
}

// wholeSeconds is a value for Retry-After, at least 1.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
