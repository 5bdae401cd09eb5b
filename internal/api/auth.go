package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/member"
)

// Authorizer finds the caller that a secret belongs to, and takes the request from the
// caller's rate limit, once however many tasks it has. It returns [auth.ErrUnknown] for an
// unknown secret, and the caller with an [auth.ScopeError] or an [auth.LimitError] when
// the request is not allowed. It must not wait, and must be safe for concurrent use.
type Authorizer interface {
	Check(secret string, need auth.Scope) (auth.Caller, error)
}

// access is whether a request is allowed, and whose it is.
type access struct {
	caller  auth.Caller
	verdict auth.Verdict // "": after an internal error
	viewer  member.ID    // of the token of a viewer; 0: it is another one, or none
	err     error        // why the request is not allowed
}

// ofViewers is no scope: the tokens of viewers have none.
const ofViewers auth.Scope = 0

// accessName is the name of the access in an [echo.Context].
const accessName = "activityd.access"

// require allows only requests with a token of the scope or, without [Config.Auth], for a
// Host that the server knows. It comes before the body is read.
func (s *Server) require(need auth.Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			a, checked := arrivalOf(c.Request()).accessFor(need)
			if !checked {
				a = s.check(c.Request(), need)
			}
			c.Set(accessName, a) // also for the log of a refused request
			if a.err != nil {
				return a.err
			}
			return next(c)
		}
	}
}

// check returns the access of a request, and counts it.
func (s *Server) check(r *http.Request, need auth.Scope) (a access) {
	if need == ofViewers {
		a = s.authorizeViewer(r)
	} else {
		a = s.authorize(r, need)
	}
	auth.CountRequest(a.caller.Name, a.verdict)
	return a
}

func (s *Server) authorize(r *http.Request, need auth.Scope) access {
	if s.cfg.Auth == nil && s.Knows(r.Host) {
		return access{verdict: auth.Allowed}
	}
	if s.cfg.Auth == nil {
		return access{verdict: auth.ForeignHost, err: misdirected.problem("%s, or give the server tokens: activityd serve --token-file", httpserver.Misdirected(r.Host))}
	}
	secret, err := bearer(r.Header, "a token or its secret")
	if err != nil {
		return access{verdict: auth.NoToken, err: err}
	}
	a := access{verdict: auth.Allowed}
	a.caller, err = s.cfg.Auth.Check(secret, need)
	if err == nil {
		return a
	}
	a.verdict, a.err = "", err // an internal error
	if errors.Is(err, auth.ErrUnknown) {
		a.verdict, a.err = auth.UnknownToken, unauthorized("invalid_token", "no token has this secret; it may have been revoked")
	} else if e, ok := errors.AsType[*auth.ScopeError](err); ok {
		a.verdict, a.err = auth.WrongScope, scopeProblem(e.Error(), e.Need)
	} else if e, ok := errors.AsType[*auth.LimitError](err); ok {
		a.verdict, a.err = auth.OverLimit, overLimit("this token's", e)
	}
	return a
}

func overLimit(whose string, e *auth.LimitError) *problem {
	p := rateLimited.problem("%s limit of requests is used up; send the same again later", whose)
	p.retryAfter = wholeSeconds(e.RetryAfter)
	return p
}

// accessOf returns the access of a request; the zero access where it needed no scope.
func accessOf(c echo.Context) access {
	a, _ := c.Get(accessName).(access)
	return a
}

// callerOf returns the caller of a request; the zero Caller where there are no tokens.
func callerOf(c echo.Context) auth.Caller { return accessOf(c).caller }

// isOperator reports whether the caller may see how an answer was found: source, times and
// explanation. They depend on photos that the viewer may not see: a private upload at a
// chosen date turns an answer by the index into one by a walk. Operators have tokens with
// the scope admin; where there are no tokens, they are the clients on this machine.
func (s *Server) isOperator(c echo.Context) bool {
	if s.cfg.Auth != nil {
		return callerOf(c).Scopes.Has(auth.Admin)
	}
	return httpserver.IsLocal(c.Request())
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
