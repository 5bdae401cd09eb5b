package access_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/access"
	"github.com/activityd/activityd/internal/metrics/metricstest"
)

// of is a series of activityd_access_requests_total.
func of(token string, v access.Verdict) string {
	return fmt.Sprintf("activityd_access_requests_total{token=%q,verdict=%q}", token, v)
}

// wantRequests holds the series of named tokens against what is wanted.
func wantRequests(t *testing.T, want ...metricstest.Samples) {
	t.Helper()
	got := metricstest.Gather(t).Named("activityd_access_requests_total")
	maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.Contains(series, `token="(`) })
	all := metricstest.Samples{}
	for _, w := range want {
		maps.Copy(all, w)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// fresh are the series of a token that nobody used yet.
func fresh(name string) metricstest.Samples {
	return metricstest.Samples{of(name, access.Allowed): 0, of(name, access.WrongScope): 0, of(name, access.OverLimit): 0}
}

// A token has series as long as it is in use, from 0 on, and is counted as unknown
// when it was revoked while it was looked at. What is not known is no label.
func TestTokensComeAndGoAsLabels(t *testing.T) {
	a, _ := issue(t, "a", access.Read, access.Limit{})
	b, _ := issue(t, "b", access.Read, access.Limit{})
	c, _ := issue(t, "c", access.Read, access.Limit{})
	before := metricstest.Gather(t)
	tokens := access.NewTokens([]access.Token{a, b})
	wantRequests(t, fresh("a"), fresh("b"))
	access.CountRequest("a", access.Allowed)
	access.CountRequest("b", access.OverLimit)
	tokens.Replace([]access.Token{c, a}) // what a had counts on
	wantRequests(t, fresh("a"), fresh("c"), metricstest.Samples{of("a", access.Allowed): 1})
	access.CountRequest("b", access.Allowed)
	access.CountRequest("", access.UnknownToken)
	access.CountRequest("", access.NoToken)
	access.CountRequest("", access.ForeignHost)
	access.CountRequest("", "")
	tokens.Replace(nil)
	wantRequests(t)
	want := metricstest.Samples{
		of("(unknown)", access.Allowed): 1, of("(unknown)", access.UnknownToken): 1,
		of("(none)", access.NoToken): 1, of("(none)", access.ForeignHost): 1, of("(none)", "other"): 1,
	}
	if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named("activityd_access_requests_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// The series are those of the tokens that were taken from the file last.
func TestLabelsFollowTheFile(t *testing.T) {
	a, _ := issue(t, "a", access.Read, access.Limit{})
	b, _ := issue(t, "b", access.Read, access.Limit{})
	path := newFile(t, lines(a))
	synctest.Test(t, func(t *testing.T) {
		_, follower, err := access.FollowTokens(path, access.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = follower.Run(ctx) })
		defer running.Wait()
		defer cancel()
		for _, step := range []struct {
			text string
			want []metricstest.Samples
		}{
			{lines(a), []metricstest.Samples{fresh("a")}},
			{lines(b, a), []metricstest.Samples{fresh("b"), fresh("a")}},
			{"nonsense", []metricstest.Samples{fresh("b"), fresh("a")}},
			{"", nil},
			{lines(b), []metricstest.Samples{fresh("b")}},
		} {
			write(t, path, step.text)
			pass()
			wantRequests(t, step.want...)
		}
	})
}
