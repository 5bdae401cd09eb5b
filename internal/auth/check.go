package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrUnknown is returned when no token has the secret.
var ErrUnknown = errors.New("no token has this secret")

// ScopeError is returned when a token lacks the scope that is needed.
type ScopeError struct {
	Has, Need Scope
}

// Error names both scopes.
func (e *ScopeError) Error() string {
	return fmt.Sprintf("the token has the scope %s; this needs %s", e.Has, e.Need)
}

// LimitError is returned when a token's limit is used up.
type LimitError struct {
	RetryAfter time.Duration // until the next request may come
}

// Error names the time to wait.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the token's limit is used up for %s", e.RetryAfter)
}

// Verdict is the result of checking a request, for the metrics.
type Verdict string

// The verdicts.
const (
	Allowed      Verdict = "allowed"
	NoToken      Verdict = "no_token"      // none, or none that can be read
	UnknownToken Verdict = "unknown_token" // see [ErrUnknown] and [ViewerTokenError]
	Expired      Verdict = "expired"       // of a viewer, see [ViewerTokenError]
	WrongScope   Verdict = "wrong_scope"   // see [ScopeError]
	OverLimit    Verdict = "limit"         // see [LimitError]
	ForeignHost  Verdict = "foreign_host"  // without tokens: for another host than this machine
)

// Caller is the bearer of a token. The zero Caller is that of a request without one.
type Caller struct {
	Name   string
	Scopes Scope
	Queues []string // see [Token]
}

// Tokens are all tokens of a server. They may be replaced at any time; all
// methods may be called from any goroutine.
type Tokens struct {
	current atomic.Pointer[[]entry]
	replace sync.Mutex // held while they are replaced
}

type entry struct {
	Token

	bucket *rate.Limiter // nil: no limit
}

// LoadTokens loads the tokens of a file: see [Parse]. It fails when the file cannot be read or is not in order.
func LoadTokens(path string, log *slog.Logger) (*Tokens, *Reloader, error) {
	t := NewTokens(nil)
	r, err := LoadFile("token file", path, func(text []byte) error {
		list, err := Parse(string(text))
		if err != nil {
			return err
		}
		if t.Replace(list); len(list) == 0 {
			log.Warn("token file has no tokens, all requests are refused", "file", path, "mend", "activityd token NAME --scopes read --append "+path)
		}
		return nil
	}, log)
	if err != nil {
		return nil, nil, fmt.Errorf("the token file cannot be used: %w", err)
	}
	return t, r, nil
}

// NewTokens returns the tokens of list.
func NewTokens(list []Token) *Tokens {
	t := &Tokens{}
	t.current.Store(&[]entry{})
	t.Replace(list)
	return t
}

// Check finds the token of a secret, and takes a request from its limit. It
// returns [ErrUnknown] when there is none, and a [ScopeError] or a [LimitError]
// together with the caller when the token is not enough. A request that is
// refused costs nothing of the limit.
func (t *Tokens) Check(secret string, need Scope) (Caller, error) {
	e := t.find(secret)
	if e == nil {
		return Caller{}, ErrUnknown
	}
	caller := Caller{Name: e.Name, Scopes: e.Scopes, Queues: e.Queues}
	if !e.Scopes.Has(need) {
		return caller, &ScopeError{Has: e.Scopes, Need: need}
	}
	if wait, ok := takeOne(e.bucket); !ok {
		return caller, &LimitError{RetryAfter: wait}
	}
	return caller, nil
}

// find compares with all tokens, even after a match, so that its time depends on their
// number alone.
func (t *Tokens) find(secret string) *entry {
	entries := *t.current.Load()
	hash, at := HashOf(secret), -1
	for i := range entries {
		equal := subtle.ConstantTimeCompare(hash[:], entries[i].Hash[:])
		at = subtle.ConstantTimeSelect(equal, i, at)
	}
	if at < 0 {
		return nil
	}
	return &entries[at]
}

// Replace replaces all tokens by list. A name that stays keeps what is left of its limit.
func (t *Tokens) Replace(list []Token) {
	t.replace.Lock()
	defer t.replace.Unlock()
	before := *t.current.Load()
	after := make([]entry, 0, len(list))
	for _, token := range list {
		var old *rate.Limiter
		if i := slices.IndexFunc(before, func(e entry) bool { return e.Name == token.Name }); i >= 0 {
			old = before[i].bucket
		}
		after = append(after, entry{Token: token, bucket: token.Limit.bucket(old)})
		beginWith0(token.Name, Allowed, WrongScope, OverLimit)
	}
	t.current.Store(&after)
}

// bucket returns the bucket of a token with this limit, nil if it has none. The old bucket
// keeps what is left in it.
func (l Limit) bucket(old *rate.Limiter) *rate.Limiter {
	if l.Count == 0 {
		return nil
	}
	if old == nil {
		return rate.NewLimiter(rate.Limit(l.perSecond()), l.Burst)
	}
	old.SetLimit(rate.Limit(l.perSecond()))
	old.SetBurst(l.Burst)
	return old
}

// takeOne takes a request from a bucket, or returns the time until there is one. It does
// not cancel a reservation instead, as that does not give back all of it when others were
// made in between.
func takeOne(b *rate.Limiter) (wait time.Duration, ok bool) {
	now := time.Now()
	if b == nil || b.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.TokensAt(now)
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second)), false
}
