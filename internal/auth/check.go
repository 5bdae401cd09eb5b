package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Verdict is the result of a check, for the metrics.
type Verdict string

// The verdicts.
const (
	Allowed      Verdict = "allowed"
	NoToken      Verdict = "no_token"      // none, or none that can be read
	UnknownToken Verdict = "unknown_token" // no token has the secret, or the token of a viewer is refused
	Expired      Verdict = "expired"       // the token of a viewer was in order until it ended
	WrongScope   Verdict = "wrong_scope"
	OverLimit    Verdict = "limit"
	ForeignHost  Verdict = "foreign_host" // without tokens: for another host than this machine
)

// RefusalError is the error of a check for a request that is not allowed.
type RefusalError struct {
	Verdict    Verdict
	Reason     string        // for the client; it has nothing secret
	Need       Scope         // of [WrongScope]
	RetryAfter time.Duration // of [OverLimit]: until the next request may come
}

// Error returns the reason.
func (r *RefusalError) Error() string { return r.Reason }

// VerdictOf returns the verdict of the error of a check: [Allowed] of nil, "" of an internal error.
func VerdictOf(err error) Verdict {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r.Verdict
	} else if err == nil {
		return Allowed
	}
	return ""
}

// Caller is the bearer of a token. The zero Caller bears no token.
type Caller struct {
	Name   string
	Scopes Scope
	Queues []string // see [Token]
}

// Tokens are all tokens of a server. They are safe for concurrent use.
type Tokens struct {
	current atomic.Pointer[[]Token]
	limits  limits[string]
}

// LoadTokens loads the tokens of a file: see [Parse]. It fails if the file is unreadable or has a fault.
func LoadTokens(path string, log *slog.Logger) (*Tokens, *Reloader, error) {
	t := NewTokens(nil)
	r, err := loadList("token file", path, func(text []byte) ([]Token, error) { return Parse(string(text)) }, t.Replace, log)
	return t, r, err
}

// NewTokens returns the tokens of list.
func NewTokens(list []Token) *Tokens {
	t := &Tokens{}
	t.Replace(list)
	return t
}

// Replace replaces all tokens by list. A name keeps the rest of its limit.
func (t *Tokens) Replace(list []Token) {
	for _, token := range list {
		beginWith0(token.Name, Allowed, WrongScope, OverLimit)
	}
	t.current.Store(&list)
}

// Check finds the token of a secret, and takes a request from its limit. It returns a [RefusalError] with the verdict
// [UnknownToken], or with [WrongScope] or [OverLimit] and the caller. A refused request costs nothing of the limit.
func (t *Tokens) Check(secret string, need Scope) (Caller, error) {
	token, known := t.find(secret)
	if !known {
		return Caller{}, refuse("no token has this secret; it may have been revoked")
	}
	caller := Caller{token.Name, token.Scopes, token.Queues}
	if !token.Scopes.Has(need) {
		return caller, &RefusalError{Verdict: WrongScope, Reason: fmt.Sprintf("the token has the scope %s; this needs %s", token.Scopes, need), Need: need}
	}
	return caller, t.limits.take(token.Name, token.Limit, "this token's")
}

// find compares with all tokens, even after a match, so that its time depends on their number alone.
func (t *Tokens) find(secret string) (found Token, known bool) {
	hash := HashOf(secret)
	for _, token := range *t.current.Load() {
		if subtle.ConstantTimeCompare(hash[:], token.Hash[:]) == 1 {
			found, known = token, true
		}
	}
	return found, known
}

// limits are buckets of requests, by the name of a token or by member.
type limits[K comparable] struct {
	mu      sync.Mutex
	buckets map[K]*rate.Limiter
}

// maxBuckets keeps the buckets below some 20 MB. Beyond it all begin again, full.
const maxBuckets = 100_000

// take takes a request from a bucket, or returns a [RefusalError]. A bucket of a different limit gets this limit.
func (l *limits[K]) take(key K, limit Limit, whose string) error {
	if limit.PerSecond == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if l.buckets == nil || len(l.buckets) >= maxBuckets {
			l.buckets = make(map[K]*rate.Limiter)
		}
		b = rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst)
		l.buckets[key] = b
	}
	b.SetLimit(rate.Limit(limit.PerSecond))
	b.SetBurst(limit.Burst)
	now := time.Now()
	if b.AllowN(now, 1) {
		return nil
	}
	// A cancelled reservation would not give back all of it if there are later reservations.
	wait := time.Duration((1 - b.TokensAt(now)) / limit.PerSecond * float64(time.Second))
	return &RefusalError{Verdict: OverLimit, Reason: whose + " limit of requests is used up; send the same again later", RetryAfter: wait}
}
