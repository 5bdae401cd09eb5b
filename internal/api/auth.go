package api

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/member"
)

// Authorizer finds the caller that a secret belongs to, and takes the request from the
// caller's rate limit, once however many tasks it has. It returns an [auth.RefusalError] for a request
// that is not allowed, with the caller if the secret is known. It must not wait, and must be safe for concurrent use.
type Authorizer interface {
	Check(secret string, need auth.Scope) (auth.Caller, error)
}

// Viewers finds the member that a viewer's token was made for, and takes the request from the
// member's rate limit. It returns an [auth.RefusalError] for a request that is not allowed. It must not
// wait, and must be safe for concurrent use.
type Viewers interface {
	Check(token string) (member.ID, error)
}

// access is whether a request is allowed, and the bearer of its token.
type access struct {
	caller  auth.Caller
	verdict auth.Verdict // "": after an internal error
	viewer  member.ID    // of the token of a viewer; 0 of all else
}

var errNoViewers = noSuchResource.problem("this server takes no tokens of viewers: activityd serve --viewer-keys")

// require allows only requests with the token that the route needs or, without [Config.Auth], for a
// Host that the server knows. It comes before the body is read.
func (s *Server) require(k *call, r route) (err error) {
	if r.need == open {
		return nil
	}
	if r.need == ofViewers && s.cfg.Viewers == nil {
		return errNoViewers
	}
	if r.path == photosOfViewer && s.cfg.Refuses() { // a token is dear to verify
		return admit.ErrBusy
	}
	k.access, err = s.check(k.Request(), r.need)
	auth.CountRequest(k.access.caller.Name, k.access.verdict)
	return err
}

func (s *Server) check(r *http.Request, need auth.Scope) (a access, err error) {
	var secret string
	switch {
	case need == ofViewers:
		if secret, err = bearer(r.Header, "the viewer's token"); err == nil {
			a.caller.Name = auth.AnyViewer
			a.viewer, err = s.cfg.Viewers.Check(secret)
		}
	case s.cfg.Auth != nil:
		if secret, err = bearer(r.Header, "a token or its secret"); err == nil {
			a.caller, err = s.cfg.Auth.Check(secret, need)
		}
	case !s.Knows(r.Host):
		reason := httpserver.Misdirected(r.Host) + ", or give the server tokens: activityd serve --token-file"
		err = &auth.RefusalError{Verdict: auth.ForeignHost, Reason: reason}
	}
	a.verdict = auth.VerdictOf(err)
	return a, err
}

// bearer returns the secret of a request (RFC 6750, 2.1); an error names it by what.
func bearer(header http.Header, what string) (string, error) {
	given := header.Values(echo.HeaderAuthorization)
	if len(given) == 1 {
		scheme, secret, _ := strings.Cut(given[0], " ")
		if secret = strings.Trim(secret, " "); strings.EqualFold(scheme, "Bearer") && secret != "" {
			return secret, nil
		}
	}
	return "", &auth.RefusalError{Verdict: auth.NoToken, Reason: "send one header Authorization: Bearer, followed by " + what}
}

// isOperator reports whether the caller may see how an answer was found: source, times and
// explanation. They depend on photos that the viewer may not see: a private upload at a
// chosen date turns an answer by the index into an answer by a walk. Operators have tokens with
// the scope admin; where there are no tokens, they are the clients on this machine.
func (s *Server) isOperator(k *call) bool {
	if s.cfg.Auth != nil {
		return k.access.caller.Scopes.Has(auth.Admin)
	}
	return httpserver.IsLocal(k.Request())
}

// isOperatorOfOpen is isOperator of a request that needs no token but may have one.
func (s *Server) isOperatorOfOpen(k *call) bool {
	r := k.Request()
	if s.cfg.Auth == nil {
		return httpserver.IsLocal(r) && s.Knows(r.Host)
	}
	if len(r.Header.Values(echo.HeaderAuthorization)) == 0 {
		return false
	}
	_, err := s.check(r, auth.Admin)
	return err == nil
}

// challenge begins the value of WWW-Authenticate (RFC 6750, 3).
const challenge = `Bearer realm="activityd"`

// problemOfRefusal returns the problem of a request that is not allowed.
func problemOfRefusal(r *auth.RefusalError) *problem {
	switch r.Verdict {
	case auth.OverLimit:
		p := rateLimited.problem("%s", r.Reason)
		p.retryAfter = wholeSeconds(r.RetryAfter)
		return p
	case auth.WrongScope:
		return scopeProblem(r.Reason, r.Need)
	case auth.ForeignHost:
		return misdirected.problem("%s", r.Reason)
	}
	p := noToken.problem("%s", r.Reason)
	if p.challenge = challenge; r.Verdict != auth.NoToken {
		p.challenge += `, error="invalid_token"`
	}
	return p
}

// scopeProblem is for a request that needs a scope that its caller does not have.
func scopeProblem(detail string, need auth.Scope) *problem {
	p := wrongScope.problem("%s", detail)
	p.challenge = fmt.Sprintf(`%s, error="insufficient_scope", scope=%q`, challenge, need.String())
	return p
}

// wholeSeconds is a value for Retry-After, at least 1.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
