package auth_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// A token has series from 0 on. What is not known is no label.
func TestRequestsAreCountedByTokenAndVerdict(t *testing.T) {
	of := func(token string, v auth.Verdict) string {
		return fmt.Sprintf("activityd_access_requests_total{token=%q,verdict=%q}", token, v)
	}
	a, _ := issue(t, "counted", auth.Read, auth.Limit{})
	auth.NewTokens([]auth.Token{a})
	before := metricstest.Gather(t)
	if n, there := before[of("counted", auth.OverLimit)]; !there || n != 0 {
		t.Errorf("before the first request: %v, %t", n, there)
	}
	auth.CountRequest("counted", auth.Allowed)
	auth.CountRequest("", auth.UnknownToken)
	auth.CountRequest("", auth.NoToken)
	auth.CountRequest("", auth.ForeignHost)
	auth.CountRequest("", "")
	want := metricstest.Samples{
		of("counted", auth.Allowed): 1, of("(unknown)", auth.UnknownToken): 1,
		of("(none)", auth.NoToken): 1, of("(none)", auth.ForeignHost): 1, of("(none)", "other"): 1,
	}
	if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named("activityd_access_requests_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
