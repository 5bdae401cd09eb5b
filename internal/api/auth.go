package api

import (
	"errors"
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

// Authorizer decides who may do what. Check finds the caller that a secret belongs to, and
// counts the request, once however many tasks it brings. It returns
// [auth.ErrUnknown] for an unknown secret, and the caller with an
// [auth.ScopeError] or an [auth.LimitError] when the request is not allowed. It
// must not wait, and must be safe for concurrent use.
type Authorizer interface {
	Check(secret string, need auth.Scope) (auth.Caller, error)
}

// The keys of the caller and of the verdict on the request in an [echo.Context].
const (
	callerKey  = "activityd.caller"
	verdictKey = "activityd.verdict"
)

// require lets only requests through that bear a token with the scope or, without
// [Config.Auth], name a Host that the server knows: another name is that of a web page
// which had it point here, to read what its visitor can. It comes before anything but
// the header is read, so that a refused request costs little.
func (s *Server) require(need auth.Scope) echo.MiddlewareFunc {
	judge := func(r *http.Request) (caller auth.Caller, _ auth.Verdict, _ error) {
		switch {
		case s.cfg.Auth != nil:
			return s.judgeToken(r.Header, need)
		case s.Knows(r.Host):
			return caller, auth.Allowed, nil
		}
		return caller, auth.ForeignHost, refuse(misdirected, "%s, or give the server tokens: activityd serve --token-file", httpserver.Misdirected(r.Host))
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			caller, verdict, err := judge(c.Request())
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

func (s *Server) judgeToken(header http.Header, need auth.Scope) (auth.Caller, auth.Verdict, error) {
	secret, err := bearer(header)
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
		return caller, auth.WrongScope, refuseScope(e.Error(), e.Need)
	}
	if e, ok := errors.AsType[*auth.LimitError](err); ok {
		p := rateLimited.problem("this token's limit of requests is used up; send the same again later")
		p.retryAfter = wholeSeconds(e.RetryAfter)
		return caller, auth.OverLimit, &refusal{p}
	}
	return caller, "", err // an internal error
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

// isOperator reports whether the caller may know how an answer was found: by which
// source, in what time, and why. All that depends on photos that the viewer may not see:
// a private upload at a chosen date turns an answer by the index into one by a walk. So
// it is for tokens with the scope admin and, where there are no tokens, for clients on
// this machine.
func (s *Server) isOperator(c echo.Context) bool {
	if s.cfg.Auth != nil {
		return callerOf(c).Scopes.Has(auth.Admin)
	}
	return isLocal(c.Request())
}

// forwarding are the headers by which a proxy says that it forwards a request.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// isLocal reports whether a request comes from this machine: the connection does, and
// no header says that it was forwarded. A proxy on this machine that sends none of the
// headers cannot be told from a client on it.
func isLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback() &&
		!slices.ContainsFunc(forwarding, func(name string) bool { return r.Header[name] != nil })
}

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

// refuseScope refuses a request that needs a scope which its caller does not have.
func refuseScope(detail string, need auth.Scope) error {
	p := wrongScope.problem(detail)
	p.challenge = challenge("insufficient_scope") + `, scope="` + need.String() + `"`
	return &refusal{p}
}

func unauthorized(code, detail string) error {
	p := noToken.problem(detail)
	p.challenge = challenge(code)
	return &refusal{p}
}

// challenge is the value of WWW-Authenticate (RFC 6750, 3). A request without a token
// gets no code.
func challenge(code string) string {
	const plain = `Bearer realm="activityd"`
	if code == "" {
		return plain
	}
	return plain + `, error="` + code + `"`
}

// wholeSeconds is for Retry-After, which has no fractions; at least 1.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
