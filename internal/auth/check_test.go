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

func TestCheck(t *testing.T) {
	t.Parallel()
	reader, readSecret := issue(t, "reader", auth.Read, auth.Limit{})
	writer, writeSecret := issue(t, "writer", auth.Write, auth.Limit{})
	admin, adminSecret := issue(t, "admin", auth.Admin, auth.Limit{})
	tokens := auth.NewTokens([]auth.Token{reader, writer, admin})
	for _, test := range []struct {
		secret, name string
		allowed      []auth.Scope
	}{
		{readSecret, "reader", []auth.Scope{auth.Read}},
		{writeSecret, "writer", []auth.Scope{auth.Write}},
		{adminSecret, "admin", []auth.Scope{auth.Read, auth.Write, auth.Admin}},
	} {
		for _, need := range []auth.Scope{auth.Read, auth.Write, auth.Admin} {
			caller, err := tokens.Check(test.secret, need)
			if caller.Name != test.name {
				t.Errorf("%s is taken for %q", test.name, caller.Name)
			}
			lacks, _ := errors.AsType[*auth.RefusalError](err)
			if allowed := slices.Contains(test.allowed, need); allowed != (err == nil) || !allowed && (lacks.Verdict != auth.WrongScope || lacks.Need != need) {
				t.Errorf("%s wants to %s: %v", test.name, need, err)
			}
		}
	}
}

func TestIssueForQueues(t *testing.T) {
	t.Parallel()
	token, secret, err := auth.Issue("mailer", auth.Work, auth.Limit{}, "mail", "letters")
	if err != nil {
		t.Fatal(err)
	}
	tokens := auth.NewTokens([]auth.Token{token})
	if caller, err := tokens.Check(secret, auth.Work); err != nil || len(caller.Queues) != 2 {
		t.Errorf("%+v, %v", caller, err)
	}
	for _, queues := range [][]string{nil, {"Mail"}, {"mail", "mail"}} {
		if _, _, err := auth.Issue("a", auth.Work, auth.Limit{}, queues...); err == nil {
			t.Errorf("Issue took %q", queues)
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

func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited, secret := issue(t, "a", auth.Read, limitOf(t, "2/s", 5))
		other, otherSecret := issue(t, "b", auth.Read, limitOf(t, "1/h", 1))
		tokens := auth.NewTokens([]auth.Token{limited, other})
		wantAllowed(t, tokens, secret, 5, 500*time.Millisecond)
		<-time.After(time.Second)
		wantAllowed(t, tokens, secret, 2, 500*time.Millisecond)
		<-time.After(time.Hour)
		wantAllowed(t, tokens, secret, 5, 500*time.Millisecond)
		wantAllowed(t, tokens, otherSecret, 1, time.Hour)
	})
}

func TestWhatLacksTheScopeCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, secret := issue(t, "a", auth.Read, limitOf(t, "1/s", 1))
		tokens := auth.NewTokens([]auth.Token{token})
		if _, err := tokens.Check(secret, auth.Write); err == nil {
			t.Fatal("a reader may write")
		}
		wantAllowed(t, tokens, secret, 1, time.Second)
	})
}

// A reload must not be a way to fill one's bucket, nor a new secret.
func TestLimitsSurviveAReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, secret := issue(t, "a", auth.Read, limitOf(t, "1/s", 3))
		tokens := auth.NewTokens([]auth.Token{token})
		wantAllowed(t, tokens, secret, 3, time.Second)
		for range 5 {
			tokens.Replace([]auth.Token{token})
		}
		wantAllowed(t, tokens, secret, 0, time.Second)
		renewed, newSecret := issue(t, "a", auth.Read, token.Limit)
		tokens.Replace([]auth.Token{renewed})
		wantAllowed(t, tokens, newSecret, 0, time.Second)
		renewed.Limit = limitOf(t, "10/s", 20) // takes effect with the next request, from an empty bucket on
		tokens.Replace([]auth.Token{renewed})
		wantAllowed(t, tokens, newSecret, 0, 100*time.Millisecond)
		<-time.After(time.Second)
		wantAllowed(t, tokens, newSecret, 10, 100*time.Millisecond)
		renewed.Limit = auth.Limit{}
		tokens.Replace([]auth.Token{renewed})
		for range 100 {
			if _, err := tokens.Check(newSecret, auth.Read); err != nil {
				t.Fatalf("without a limit: %v", err)
			}
		}
	})
}

// For the race detector: requests go on while tokens are replaced, and those of
// a token that stays are never refused.
func TestReplaceUnderTraffic(t *testing.T) {
	t.Parallel()
	stays, secret := issue(t, "stays", auth.Read, limitOf(t, "1000000/s", 1000000))
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
