package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
)

const (
	sessionCookie = "activityd_session" // has the sealed secret of a token; it ends with the browser
	sessionTTL    = 12 * time.Hour      // at most
)

// newSeal returns a cipher by a key of this process.
func newSeal() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // of 32 bytes there is one
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// sealed returns the value of a session for a secret.
func (c *Console) sealed(secret string, ends time.Time) string {
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(ends.Unix())), secret...)
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nil, nil, plain, nil)) //nolint:gosec // it makes a random nonce
}

// opened returns the secret of a session; "": it is none of this process, or has ended.
func (c *Console) opened(session string, now time.Time) string {
	raw, err := base64.RawURLEncoding.DecodeString(session)
	if err != nil {
		return ""
	}
	plain, err := c.seal.Open(nil, nil, raw, nil)
	if err != nil || len(plain) < 8 || now.Unix() >= int64(binary.BigEndian.Uint64(plain)) {
		return ""
	}
	return string(plain[8:])
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
			return auth.Caller{}, errors.New("without tokens, this page is for browsers on the same machine: open it there, or through ssh -L, or give the server tokens (--token-file)")
		}
		return auth.Caller{Name: "this machine", Scopes: auth.Admin}, nil
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return auth.Caller{}, errSignIn
	}
	secret := c.opened(cookie.Value, time.Now())
	if secret == "" {
		return auth.Caller{}, errSignIn
	}
	caller, err := c.Tokens.Check(secret, need)
	if errors.Is(err, auth.ErrUnknown) { // it was revoked
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
	caller, err := c.Tokens.Check(secret, auth.Inspect)
	if err != nil {
		auth.CountRequest(caller.Name, auth.UnknownToken)
		v.Problem = "This was not accepted: " + err.Error() + "."
		c.write(w, r, v)
		return
	}
	setSession(w, r, c.sealed(secret, time.Now().Add(sessionTTL)))
	c.Log.InfoContext(r.Context(), "signed in to the console", "token", caller.Name)
	if !strings.HasPrefix(v.Next, "/console/") {
		v.Next = "/console/"
	}
	http.Redirect(w, r, v.Next, http.StatusSeeOther) //nolint:gosec // it is a page of this console
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	setSession(w, r, "")
	http.Redirect(w, r, "/console/", http.StatusSeeOther)
}
