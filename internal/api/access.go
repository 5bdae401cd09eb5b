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

	"github.com/activityd/activityd/internal/access"
	"github.com/activityd/activityd/internal/httpserver"
)

// Access decides who may do what. Check finds whom a secret belongs to, and counts
// the request: once, however many tasks it brings, whose number has limits of its
// own. It returns [access.ErrUnknown] for a secret of nobody, and the caller with
// an [access.ScopeError] or an [access.LimitError] when the request may not be. It
// must not wait, and must be safe for concurrent use.
type Access interface {
	Check(secret string, need access.Scope) (access.Caller, error)
}

// Where an [echo.Context] keeps the caller, and the verdict on the request.
const (
	callerKey  = "activityd.caller"
	verdictKey = "activityd.verdict"
)

// require lets only those requests through that bear a token with the scope or,
// without [Config.Access], are for this machine. It comes before anything is read
// but the header, so that a stranger costs little.
func (s *Server) require(need access.Scope) echo.MiddlewareFunc {
	judge := s.judgeHost
	if s.cfg.Access != nil {
		judge = func(r *http.Request) (access.Caller, access.Verdict, error) { return s.judgeToken(r.Header, need) }
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			caller, verdict, err := judge(c.Request())
			c.Set(callerKey, caller) // of a refused request, too: the log names it
			c.Set(verdictKey, verdict)
			access.CountRequest(caller.Name, verdict)
			if err != nil {
				return err
			}
			return next(c)
		}
	}
}

func (s *Server) judgeToken(header http.Header, need access.Scope) (access.Caller, access.Verdict, error) {
	secret, err := bearer(header)
	if err != nil {
		return access.Caller{}, access.NoToken, err
	}
	caller, err := s.cfg.Access.Check(secret, need)
	verdict, err := refuseCaller(err)
	return caller, verdict, err
}

// judgeHost lets everybody ask who asks for this machine. Another name is that of
// a web page which had it point here: the page would read what its visitor can.
func (s *Server) judgeHost(r *http.Request) (access.Caller, access.Verdict, error) {
	if s.Knows(r.Host) {
		return access.Caller{}, access.Allowed, nil
	}
	return access.Caller{}, access.ForeignHost, refuse(misdirected, "%s, or give the server tokens: activityd serve --token-file", httpserver.Misdirected(r.Host))
}

// callerOf returns who asks; the zero Caller where nobody has to say.
func callerOf(c echo.Context) access.Caller {
	caller, _ := c.Get(callerKey).(access.Caller)
	return caller
}

// verdictOf returns whether the request was let through; "" where it needed no scope.
func verdictOf(c echo.Context) access.Verdict {
	verdict, _ := c.Get(verdictKey).(access.Verdict)
	return verdict
}

// isOperator tells whether the caller may see what a viewer may not: whom a block
// hides, and when somebody uploaded what is not visible. Where there are no
// tokens nobody is: who sits on the same machine is not yet trusted with that.
func isOperator(c echo.Context) bool { return callerOf(c).Scopes.Has(access.Admin) }

// isToldHow reports whether the caller is told how an answer was found: by which
// source, and in what time. Both depend on photos that the viewer may not see: a
// private upload at a chosen date turns an answer by the index into one by a walk.
// So they are for operators and, where there are no tokens, for this machine.
func (s *Server) isToldHow(c echo.Context) bool {
	if s.cfg.Access != nil {
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
func refuseCaller(err error) (access.Verdict, error) {
	if err == nil {
		return access.Allowed, nil
	}
	if errors.Is(err, access.ErrUnknown) {
		return access.UnknownToken, unauthorized("invalid_token", "no token has this secret; it may have been revoked")
	}
	if e, ok := errors.AsType[*access.ScopeError](err); ok {
		p := wrongScope.problem(e.Error())
		p.challenge = challenge("insufficient_scope") + `, scope="` + e.Need.String() + `"`
		return access.WrongScope, &refusal{p}
	}
	if e, ok := errors.AsType[*access.LimitError](err); ok {
		p := rateLimited.problem("this token's limit of requests is used up; send the same again later")
		p.retryAfter = wholeSeconds(e.RetryAfter)
		return access.OverLimit, &refusal{p}
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
