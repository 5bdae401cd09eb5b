package console

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
)

const (
	sessionCookie = "activityd_session" // has the id of a session; it ends with the browser
	sessionTTL    = 12 * time.Hour      // at most
)

// session is that of a browser. Each process has its own, in memory.
type session struct {
	secret string // of a token
	ends   time.Time
}

// setSession gives a session to the browser, or with an empty value takes it away.
func setSession(w http.ResponseWriter, r *http.Request, value string) {
	c := &http.Cookie{ //nolint:gosec // a cookie that is secure is not kept where there is no TLS
		Name: sessionCookie, Value: value, Path: "/console/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// errSignIn says that the browser has to sign in.
var errSignIn = errors.New("sign in with a token")

// access returns who asks, or an error if it may not.
func (c *Console) access(r *http.Request, need auth.Scope) (auth.Caller, error) {
	if c.Tokens == nil {
		if !httpserver.IsLocal(r) || !c.Knows(r.Host) {
			return auth.Caller{}, &auth.RefusalError{Verdict: auth.ForeignHost, Reason: "without tokens, this page is for browsers " +
				"on the same machine: open it there, or through ssh -L, or give the server tokens (--token-file)"}
		}
		return auth.Caller{Name: "this machine", Scopes: auth.Admin}, nil
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return auth.Caller{}, errSignIn
	}
	known, _ := c.sessions.Load(cookie.Value)
	of, _ := known.(session) // an unknown session has ended
	if !time.Now().Before(of.ends) {
		return auth.Caller{}, errSignIn
	}
	caller, err := c.Tokens.Check(of.secret, need)
	if auth.VerdictOf(err) == auth.UnknownToken { // it was revoked
		err = errSignIn
	}
	return caller, err
}

// signIn begins a session for the secret of a token.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	v := &view{Title: "Sign in", status: http.StatusForbidden, SignIn: c.Tokens != nil, Next: r.PostFormValue("next")}
	if c.Tokens == nil {
		v.Problem = "There are no tokens: nobody signs in."
		c.write(w, r, v)
		return
	}
	secret := strings.TrimSpace(r.PostFormValue("token"))
	var caller auth.Caller
	err := errSignIn
	if secret != "" {
		caller, err = c.Tokens.Check(secret, auth.Inspect)
	}
	if err != nil {
		auth.CountRequest(caller.Name, auth.UnknownToken)
		v.Problem = "This was not accepted: " + err.Error() + "."
		c.write(w, r, v)
		return
	}
	now := time.Now()
	c.sessions.Range(func(old, of any) bool {
		if of, _ := of.(session); !now.Before(of.ends) {
			c.sessions.Delete(old)
		}
		return true
	})
	id := rand.Text()
	c.sessions.Store(id, session{secret, now.Add(sessionTTL)})
	setSession(w, r, id)
	c.Log.InfoContext(r.Context(), "signed in to the console", "token", caller.Name)
	if !strings.HasPrefix(v.Next, "/console/") {
		v.Next = "/console/"
	}
	http.Redirect(w, r, v.Next, http.StatusSeeOther) //nolint:gosec // it is a page of this console
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		c.sessions.Delete(cookie.Value)
	}
	setSession(w, r, "")
	http.Redirect(w, r, "/console/", http.StatusSeeOther)
}
