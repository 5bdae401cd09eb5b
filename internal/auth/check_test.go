package auth_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/auth"
)

// A token may do as its scopes say: admin includes all but work, and write does not include read.
func TestCheck(t *testing.T) {
	t.Parallel()
	const r, w, i, a, k = auth.Read, auth.Write, auth.Inspect, auth.Admin, auth.Work
	for scopes, allowed := range map[auth.Scope][]auth.Scope{
		r: {r}, w: {w}, r | w: {r, w, r | w}, i: {i}, a: {r, w, r | w, i, a}, k: {k}, k | r: {k, r}, a | k: {r, w, r | w, i, a, k},
	} {
		var queues []string
		if scopes&k != 0 {
			queues = []string{"mail", "letters"}
		}
		token, secret, err := auth.Issue("mailer", scopes, auth.Limit{}, queues...)
		must(t, err)
		tokens := auth.NewTokens([]auth.Token{token})
		for _, need := range []auth.Scope{r, w, r | w, i, a, k} {
			caller, err := tokens.Check(secret, need)
			if caller.Name != "mailer" || len(caller.Queues) != len(queues) {
				t.Errorf("the caller is %+v", caller)
			}
			lacks, _ := errors.AsType[*auth.RefusalError](err)
			if allowed := slices.Contains(allowed, need); allowed != (err == nil) || !allowed && (lacks.Verdict != auth.WrongScope || lacks.Need != need) {
				t.Errorf("%s wants to %s: %v", scopes, need, err)
			}
		}
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "a", auth.Admin, auth.Limit{})
	tokens := auth.NewTokens([]auth.Token{token})
	hash := token.Hash.String()
	for _, stranger := range []string{"", "a", hash, strings.TrimPrefix(hash, "sha256:"), secret[:len(secret)-1], secret + "A", strings.ToLower(secret), " " + secret, string(token.Hash[:])} {
		if caller, err := tokens.Check(stranger, 0); auth.VerdictOf(err) != auth.UnknownToken || caller.Name != "" {
			t.Errorf("Check(%q) = %v, %v", stranger, caller, err)
		}
	}
	if _, err := auth.NewTokens(nil).Check(secret, 0); auth.VerdictOf(err) != auth.UnknownToken {
		t.Errorf("without tokens: %v", err)
	}
}

// wantAllowed counts how many requests are let through now.
func wantAllowed(t *testing.T, tokens *auth.Tokens, secret string, want int, retryAfter time.Duration) {
	t.Helper()
	for i := range want {
		if _, err := tokens.Check(secret, auth.Read); err != nil {
			t.Fatalf("request %d of %d: %v", i+1, want, err)
		}
	}
	for range 3 { // a refusal costs nothing
		caller, err := tokens.Check(secret, auth.Read)
		spent, _ := errors.AsType[*auth.RefusalError](err)
		if auth.VerdictOf(err) != auth.OverLimit || caller.Name == "" {
			t.Fatalf("one too many: %v, %v", caller, err)
		}
		if off := spent.RetryAfter - retryAfter; off < -time.Millisecond || off > time.Millisecond {
			t.Fatalf("retry after %s, want %s", spent.RetryAfter, retryAfter)
		}
	}
}

// A limit is that of a name: neither a reload nor a new secret fills the bucket. A request without the scope costs nothing.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, secret := issue(t, "a", auth.Read, limitOf(t, "3/s"))
		other, otherSecret := issue(t, "b", auth.Read, limitOf(t, "1/s"))
		tokens := auth.NewTokens([]auth.Token{token, other})
		if _, err := tokens.Check(secret, auth.Write); err == nil {
			t.Fatal("a reader may write")
		}
		wantAllowed(t, tokens, secret, 3, time.Second/3)
		wantAllowed(t, tokens, otherSecret, 1, time.Second)
		<-time.After(time.Second / 3)
		wantAllowed(t, tokens, secret, 1, time.Second/3)
		<-time.After(time.Hour)
		wantAllowed(t, tokens, secret, 3, time.Second/3)
		renewed, newSecret := issue(t, "a", auth.Read, token.Limit)
		for range 3 {
			tokens.Replace([]auth.Token{renewed})
		}
		wantAllowed(t, tokens, newSecret, 0, time.Second/3)
		renewed.Limit = limitOf(t, "10/s") // takes effect with the next request, from an empty bucket on
		tokens.Replace([]auth.Token{renewed})
		wantAllowed(t, tokens, newSecret, 0, 100*time.Millisecond)
		<-time.After(time.Second)
		wantAllowed(t, tokens, newSecret, 10, 100*time.Millisecond)
		renewed.Limit = auth.Limit{}
		tokens.Replace([]auth.Token{renewed})
		for range 100 {
			_, err := tokens.Check(newSecret, auth.Read)
			must(t, err)
		}
	})
}

// For the race detector: requests go on while tokens are replaced, and those of
// a token that stays are never refused.
func TestReplaceUnderTraffic(t *testing.T) {
	t.Parallel()
	stays, secret := issue(t, "stays", auth.Read, limitOf(t, "1000000/s"))
	comes, _ := issue(t, "comes", auth.Read, auth.Limit{})
	tokens := auth.NewTokens([]auth.Token{stays})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 500 {
				if _, err := tokens.Check(secret, auth.Read); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		tokens.Replace([]auth.Token{comes, stays})
		tokens.Replace([]auth.Token{stays})
	}
	callers.Wait()
}
