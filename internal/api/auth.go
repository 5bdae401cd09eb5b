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

// Authorizer decides who may do what. Check finds the caller that a secret belongs to,
// and counts the request: once, however many tasks it brings, whose number has limits of
// its own. It returns [auth.ErrUnknown] for a secret that no token has, and the caller
// with an [auth.ScopeError] or an [auth.LimitError] when the request is refused. It must
// not block, and must be safe for concurrent use.
type Authorizer interface {
	Check(secret string, need auth.Scope) (auth.Caller, error)
}

// Where an [echo.Context] keeps the caller, and the verdict on the request.
const (
	callerKey  = "activityd.caller"
	verdictKey = "activityd.verdict"
)

// require lets only those requests through that bear a token with the scope or,
// without [Config.Auth], are for this machine. It comes before anything is read
// but the header, so that a stranger costs little.
func (s *Server) require(need auth.Scope) echo.MiddlewareFunc {
	judge := s.judgeHost
	if s.cfg.Auth != nil {
		judge = func(r *http.Request) (auth.Caller, auth.Verdict, error) { return s.judgeToken(r.Header, need) }
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			caller, verdict, err := judge(c.Request())
			c.Set(callerKey, caller) // of a refused request, too: the log names it
			c.Set(verdictKey, verdict)
			s.cfg.Observer.CallerJudged(caller.Name, verdict)
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
	verdict, err := refuseCaller(err)
	return caller, verdict, err
}

// judgeHost lets everybody ask who asks for this machine. Another name is that of
// a web page which had it point here: the page would read what its visitor can.
func (s *Server) judgeHost(r *http.Request) (auth.Caller, auth.Verdict, error) {
	if s.Knows(r.Host) {
		return auth.Caller{}, auth.Allowed, nil
	}
	return auth.Caller{}, auth.ForeignHost, refuse(misdirected, "%s, or give the server tokens: activityd serve --token-file", httpserver.Misdirected(r.Host))
}

// callerOf returns who asks; the zero Caller where nobody has to say.
func callerOf(c echo.Context) auth.Caller {
	caller, _ := c.Get(callerKey).(auth.Caller)
	return caller
}

// verdictOf returns whether the request was let through; "" where it needed no scope.
func verdictOf(c echo.Context) auth.Verdict {
	verdict, _ := c.Get(verdictKey).(auth.Verdict)
	return verdict
}

// isOperator tells whether the caller may see what a viewer may not: whom a block
// hides, and when somebody uploaded what is not visible. Where there are no
// tokens nobody is: who sits on the same machine is not yet trusted with that.
func isOperator(c echo.Context) bool { return callerOf(c).Scopes.Has(auth.Admin) }

// isToldHow reports whether the caller is told how an answer was found: by which
// source, and in what time. Both depend on photos that the viewer may not see: a
// private upload at a chosen date turns an answer by the index into one by a walk.
// So they are for operators and, where there are no tokens, for this machine.
func (s *Server) isToldHow(c echo.Context) bool {
	if s.cfg.Auth != nil {
		return isOperator(c)
	}
	return isLocal(c.Request())
}

// forwarding are the headers by which a proxy says that it asks for another.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// isLocal reports whether a request comes from this machine: the connection does,
// and no proxy says that it is for a client elsewhere. The headers can only take
// away. A proxy on this machine that sends none of them cannot be told from a client
// on it.
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

// refuseCaller says no to a request whose caller may not make it, for what
// [Access.Check] returned.
func refuseCaller(err error) (auth.Verdict, error) {
	if err == nil {
		return auth.Allowed, nil
	}
	if errors.Is(err, auth.ErrUnknown) {
		return auth.UnknownToken, unauthorized("invalid_token", "no token has this secret; it may have been revoked")
	}
	if e, ok := errors.AsType[*auth.ScopeError](err); ok {
		p := wrongScope.problem(e.Error())
		p.challenge = challenge("insufficient_scope") + `, scope="` + e.Need.String() + `"`
		return auth.WrongScope, &refusal{p}
	}
	if e, ok := errors.AsType[*auth.LimitError](err); ok {
		p := rateLimited.problem("this token's limit of requests is used up; send the same again later")
		p.retryAfter = wholeSeconds(e.RetryAfter)
		return auth.OverLimit, &refusal{p}
	}
	return "", err // it does not keep its word, and that is our fault
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
