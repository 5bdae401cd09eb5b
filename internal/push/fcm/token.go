package fcm

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

const (
	scope = "https://www.googleapis.com/auth/firebase.messaging"
	// assertionLife is how long the signed JWT is good for, at most an hour.
	assertionLife = 10 * time.Minute
	// fetchTimeout bounds a request for a token.
	fetchTimeout = 10 * time.Second
	// margin is how long before its end a token is not used any more: a request may take
	// some time, and clocks differ.
	margin = 30 * time.Second
	// ahead is how long before its end a token is renewed, while it is still used.
	ahead = 5 * time.Minute
	// minLife is how long a token must be good for.
	minLife = 2 * margin
	// failurePause is how long a failure stands for all that would ask again, and
	// maxFailurePause how long at most, whatever the answer says.
	failurePause    = time.Second
	maxFailurePause = 5 * time.Minute
	// freshness is how old a token must be for a 401 to be taken as its end, and not as
	// that of the credentials: at most once in this time it is replaced.
	freshness = time.Minute
)

// account is a service account with its access token. The invariant: at most one request
// for a token is under way, and all messages that need a token wait for it.
type account struct {
	*credentials

	sender *Sender

	mu       sync.Mutex
	token    string        // "" before the first
	fetched  time.Time     // when token was asked for
	renew    time.Time     // when to ask for the next
	ends     time.Time     // it is not used any more from then on
	fetching chan struct{} // closed at the end of the request under way; nil: none is
	failure  push.Result   // of the last request, if it failed
	again    time.Time     // after a failure: not before
}

// accessToken returns the token, and waits for a token if none is good. Else
// failed is true, and r says why there is none.
func (a *account) accessToken(ctx context.Context) (token string, r push.Result, failed bool) {
	for {
		a.mu.Lock()
		now := a.sender.now()
		good := a.token != "" && now.Before(a.ends)
		if (!good || !now.Before(a.renew)) && a.fetching == nil && !now.Before(a.again) {
			done := make(chan struct{})
			a.fetching = done
			a.sender.fetches.Go(func() { a.fetch(done) }) // it is of all messages
		}
		token, r, fetching := a.token, a.failure, a.fetching
		a.mu.Unlock()
		switch {
		case good:
			return token, push.Result{}, false
		case fetching == nil:
			return "", r, true
		}
		select {
		case <-fetching:
		case <-ctx.Done():
			return "", push.Result{Outcome: push.Wait, Reason: "token_timeout"}, true
		}
	}
}

// refused drops a token that FCM did not take, and reports whether another may do.
func (a *account) refused(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case token != a.token: // it was replaced already
		return true
	case a.sender.now().Sub(a.fetched) < freshness:
		return false
	}
	a.token = ""
	return true
}

// fetch gets a token, and closes done, that is a.fetching. It is bound to the sender's
// life and not to a message's, as many wait for it.
func (a *account) fetch(done chan struct{}) {
	ctx, cancel := context.WithTimeout(a.sender.ctx, fetchTimeout)
	defer cancel()
	began := a.sender.now()
	token, life, r := a.request(ctx, began)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fetching = nil
	close(done)
	if token != "" {
		a.token, a.fetched = token, began
		a.renew, a.ends = began.Add(life-min(ahead, life/2)), began.Add(life-margin)
		a.failure, a.again = push.Result{}, time.Time{}
		return
	}
	if r.Reason != a.failure.Reason && a.sender.ctx.Err() == nil { // a breaker may never open: few members count for little
		a.sender.log.WarnContext(ctx, "FCM access token was not given", "status", r.Status, "reason", r.Reason, "project", a.project)
	}
	a.failure, a.again = r, a.sender.now().Add(min(max(r.After, failurePause), maxFailurePause))
}

// request asks for a token once. If it gets none, r says why.
func (a *account) request(ctx context.Context, now time.Time) (token string, life time.Duration, r push.Result) {
	assertion, err := a.assertion(now)
	if err != nil {
		return "", 0, push.Result{Outcome: push.Credentials, Reason: "token_signature", Origin: true}
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "User-Agent": {"activityd"}}
	answer, failed := a.sender.pool.Post(ctx, a.tokenURL, header, []byte(form.Encode()), time.Time{})
	if failed != nil {
		return "", 0, push.Result{Outcome: push.Wait, Reason: "token_unreachable", Origin: true, Err: failed.Err}
	}
	var given struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"` // seconds
		Error       string  `json:"error"`
	}
	err = json.Unmarshal(answer.Body, &given)
	if answer.Status == http.StatusOK && err == nil && given.AccessToken != "" && given.ExpiresIn >= minLife.Seconds() {
		return given.AccessToken, time.Duration(min(given.ExpiresIn, 24*time.Hour.Seconds()) * float64(time.Second)), r
	}
	return "", 0, classifyToken(answer, given.Error, now)
}

// classifyToken returns the meaning of an answer without a token, for all messages.
func classifyToken(a conn.Answer, said string, now time.Time) push.Result {
	r := push.Result{Outcome: push.Wait, Status: a.Status, Reason: statusReason("token_http_", a.Status), Origin: true}
	r.After = conn.RetryAfter(a.Header, now)
	switch said { // RFC 6749, 5.2
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
		r.Reason = "token_" + said
	}
	isTransient := a.Status/100 == 2 || a.Status/100 == 5 || a.Status == http.StatusTooManyRequests || a.Status == http.StatusRequestTimeout
	if !isTransient && a.Header.Get("Retry-After") == "" {
		r.Outcome = push.Credentials
	}
	return r
}

// assertion returns a JWT (RFC 7523) that is signed with the account's key.
func (a *account) assertion(now time.Time) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": a.email, "scope": scope, "aud": a.tokenURL.String(),
		"iat": now.Unix(), "exp": now.Add(assertionLife).Unix(),
	})
	if a.keyID != "" {
		t.Header["kid"] = a.keyID
	}
	return t.SignedString(a.key)
}
