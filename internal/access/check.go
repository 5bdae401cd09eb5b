package access

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrUnknown says that no token has the secret that was shown.
var ErrUnknown = errors.New("no token has this secret")

// ScopeError says that a token may not do what its bearer wants.
type ScopeError struct {
	Has, Need Scope
}

// Error names both scopes.
func (e *ScopeError) Error() string {
	return fmt.Sprintf("the token has the scope %s; this needs %s", e.Has, e.Need)
}

// LimitError says that a token's limit is used up.
type LimitError struct {
	RetryAfter time.Duration // until the next request may come
}

// Error says how long to wait.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the token's limit is used up for %s", e.RetryAfter)
}

// Verdict says whether a request may be made, and if not, why. It is for whoever
// counts them.
type Verdict string

// The verdicts.
const (
	Allowed      Verdict = "allowed"
	NoToken      Verdict = "no_token"      // it shows none, or not as it should
	UnknownToken Verdict = "unknown_token" // see [ErrUnknown]
	WrongScope   Verdict = "wrong_scope"   // see [ScopeError]
	OverLimit    Verdict = "limit"         // see [LimitError]
	ForeignHost  Verdict = "foreign_host"  // without tokens: it is not for this machine
)

// Caller is who bears a token. The zero Caller is nobody.
type Caller struct {
	Name   string
	Scopes Scope
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

// NewTokens returns the tokens of list.
func NewTokens(list []Token) *Tokens {
	t := &Tokens{}
	t.current.Store(&[]entry{})
	t.Replace(list)
	return t
}

// Len returns how many there are.
func (t *Tokens) Len() int { return len(*t.current.Load()) }

// Check finds the token of a secret, and takes a request from its limit. It
// returns [ErrUnknown] when there is none, and a [ScopeError] or a [LimitError]
// together with the caller when the token is not enough. A request that is
// refused costs nothing of the limit.
func (t *Tokens) Check(secret string, need Scope) (Caller, error) {
	e := t.find(secret)
	if e == nil {
		return Caller{}, ErrUnknown
	}
	caller := Caller{Name: e.Name, Scopes: e.Scopes}
	if !e.Scopes.Has(need) {
		return caller, &ScopeError{Has: e.Scopes, Need: need}
	}
	if wait, ok := takeOne(e.bucket); !ok {
		return caller, &LimitError{RetryAfter: wait}
	}
	return caller, nil
}

// find compares with all tokens, whether one was found or not. How long it takes
// tells how many there are and nothing else.
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

// Replace puts list in the place of the tokens. A limit whose name stays goes on
// with what is left of it. It returns the names that came and those that went; a
// name whose secret changed is both.
func (t *Tokens) Replace(list []Token) (added, removed []string) {
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
	}
	t.current.Store(&after)
	setLabels(after)
	return namesWithout(after, before), namesWithout(before, after)
}

// namesWithout returns the names of those in list that others lack.
func namesWithout(list, others []entry) []string {
	var names []string
	for _, e := range list {
		same := func(o entry) bool { return o.Name == e.Name && o.Hash == e.Hash }
		if !slices.ContainsFunc(others, same) {
			names = append(names, e.Name)
		}
	}
	return names
}
