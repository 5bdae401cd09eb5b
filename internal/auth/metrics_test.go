package auth_test

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// of is a series of activityd_access_requests_total.
func of(token string, v auth.Verdict) string {
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

// fresh are the series of a token that was not used yet.
func fresh(name string) metricstest.Samples {
	return metricstest.Samples{of(name, auth.Allowed): 0, of(name, auth.WrongScope): 0, of(name, auth.OverLimit): 0}
}

// A token has series as long as it is in use, from 0 on, and is counted as unknown
// when it was revoked while it was looked at. What is not known is no label.
func TestTokensComeAndGoAsLabels(t *testing.T) {
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Read, auth.Limit{})
	c, _ := issue(t, "c", auth.Read, auth.Limit{})
	before := metricstest.Gather(t)
	tokens := auth.NewTokens([]auth.Token{a, b})
	wantRequests(t, fresh("a"), fresh("b"))
	auth.CountRequest("a", auth.Allowed)
	auth.CountRequest("b", auth.OverLimit)
	tokens.Replace([]auth.Token{c, a}) // what a had counts on
	wantRequests(t, fresh("a"), fresh("c"), metricstest.Samples{of("a", auth.Allowed): 1})
	auth.CountRequest("b", auth.Allowed)
	auth.CountRequest("", auth.UnknownToken)
	auth.CountRequest("", auth.NoToken)
	auth.CountRequest("", auth.ForeignHost)
	auth.CountRequest("", "")
	tokens.Replace(nil)
	wantRequests(t)
	want := metricstest.Samples{
		of("(unknown)", auth.Allowed): 1, of("(unknown)", auth.UnknownToken): 1,
		of("(none)", auth.NoToken): 1, of("(none)", auth.ForeignHost): 1, of("(none)", "other"): 1,
	}
	if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named("activityd_access_requests_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// The series are those of the tokens that were taken from the file last.
func TestLabelsFollowTheFile(t *testing.T) {
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Read, auth.Limit{})
	path := newFile(t, lines(a))
	_, reloader, err := auth.LoadTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	lookTwice(t, reloader)
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
		lookTwice(t, reloader)
		wantRequests(t, step.want...)
	}
}
