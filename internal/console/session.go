package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"github.com/activityd/activityd/internal/auth"
)

// The cookies. Both are of this page alone, and end with the browser.
const (
	sessionCookie = "activityd_session" // the sealed secret of a token
	browserCookie = "activityd_browser" // what is random
)

// sessionTTL is how long a session lasts at most.
const sessionTTL = 12 * time.Hour

// keys are those of this process.
type keys struct {
	seal cipher.AEAD
	form []byte
}

func newKeys() keys {
	key := make([]byte, 64)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		panic(err) // of 32 bytes there is one
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return keys{aead, key[32:]}
}

// session returns the value of a cookie for a secret.
func (k keys) session(secret string, ends time.Time) string {
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(ends.Unix())), secret...)
	return base64.RawURLEncoding.EncodeToString(k.seal.Seal(nil, nil, plain, nil)) //nolint:gosec // it makes a random nonce
}

// secret returns the secret of a session; "": it is none of this process, or has ended.
func (k keys) secret(session string, now time.Time) string {
	sealed, err := base64.RawURLEncoding.DecodeString(session)
	if err != nil {
		return ""
	}
	plain, err := k.seal.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) < 8 || now.Unix() >= int64(binary.BigEndian.Uint64(plain)) {
		return ""
	}
	return string(plain[8:])
}

// formOf returns the field of a form for a browser with these cookies.
func (k keys) formOf(browser, session string) string {
	mac := hmac.New(sha256.New, k.form)
	_, _ = mac.Write([]byte(browser + " " + session)) // no cookie has a space
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isOurs reports whether a form was given to the browser that sends it.
func (k keys) isOurs(r *http.Request) bool {
	browser := cookie(r, browserCookie)
	return browser != "" && hmac.Equal([]byte(r.PostFormValue("form")), []byte(k.formOf(browser, cookie(r, sessionCookie))))
}

func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie gives a cookie to the browser, or with an empty value takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	c := &http.Cookie{ //nolint:gosec // a cookie that is secure is not kept where there is no TLS
		Name: name, Value: value, Path: "/console/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
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
		if !c.local(r) {
			return auth.Caller{}, errors.New("without tokens, this page is for browsers on the same machine: open it there, or through ssh -L, or give the server tokens (--token-file)")
		}
		return auth.Caller{Name: "this machine", Scopes: auth.Admin}, nil
	}
	secret := c.keys.secret(cookie(r, sessionCookie), time.Now())
	if secret == "" {
		return auth.Caller{}, errSignIn
	}
	caller, err := c.Tokens.Check(secret, need)
	if errors.Is(err, auth.ErrUnknown) { // it was revoked
		err = errSignIn
	}
	return caller, err
}

// newBrowser returns a value for browserCookie.
func newBrowser() string { return rand.Text() }
