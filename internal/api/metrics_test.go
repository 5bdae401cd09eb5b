package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// counting returns a function that compares the increase of a metric since the last call
// with the wanted increase. The test must not be parallel.
func counting(t *testing.T, name string) (expect func(what string, want metricstest.Samples)) {
	t.Helper()
	before := metricstest.Gather(t)
	return func(what string, want metricstest.Samples) {
		t.Helper()
		now := metricstest.Gather(t)
		if diff := cmp.Diff(want, now.Since(before).Named(name)); diff != "" {
			t.Errorf("%s: counted (-want +got):\n%s", what, diff)
		}
		before = now
	}
}

// judged is the series of a verdict.
func judged(token string, v auth.Verdict) string {
	return fmt.Sprintf("activityd_access_requests_total{token=%q,verdict=%q}", token, v)
}

// No label of a metric comes from a client.
func TestRequestsAreCountedByTheirRoute(t *testing.T) {
	b := setup(t)
	before := metricstest.Gather(t)
	b.reader.read = func(_ context.Context, v contacts.Viewer, _ int) (recent.Answer, error) {
		switch n := metricstest.Gather(t).Since(before)["activityd_http_requests_in_flight"]; {
		case n != 1:
			t.Errorf("%v requests in flight, want 1", n)
		case v.ID == 2:
			return recent.Answer{}, contacts.ErrNoMember
		case v.ID == 3:
			panic("boom")
		}
		return recent.Answer{}, nil
	}
	const users = "/v1/users/"
	for _, r := range []struct{ method, path string }{
		{"GET", users + "1/recent-contact-photos"},
		{"GET", users + "2/recent-contact-photos"},
		{"GET", users + "3/recent-contact-photos"},
		{"GET", users + "1/other"},
		{"GET", "/made/up"},
		{"GET", "/v1/tasks"},
		{"MADEUP", "/v1/tasks"},
		{"ALSO", "/v1/tasks"},
		{"GET", users + "made-up/recent-contact-photos"},
		{"GET", users + "made-up-too/recent-contact-photos"},
	} {
		b.server.Handler().ServeHTTP(httptest.NewRecorder(), newRequest(t.Context(), r.method, r.path, http.NoBody))
	}
	rose := metricstest.Gather(t).Since(before)
	want := make(metricstest.Samples)
	for _, r := range []struct {
		code, method, route string
		n                   float64
	}{
		{"200", "GET", users + ":id/recent-contact-photos", 1},
		{"404", "GET", users + ":id/recent-contact-photos", 1},
		{"500", "GET", users + ":id/recent-contact-photos", 1},
		{"400", "GET", users + ":id/recent-contact-photos", 2},
		{"404", "GET", "unmatched", 2},
		{"405", "GET", "/v1/tasks", 1},
		{"405", "other", "/v1/tasks", 2},
	} {
		by := fmt.Sprintf("{code=%q,method=%q,route=%q}", r.code, r.method, r.route)
		want["activityd_http_request_seconds"+by] = r.n
		if took := rose["activityd_http_request_seconds_sum"+by]; took <= 0 {
			t.Errorf("%s took %v", by, took)
		}
	}
	if diff := cmp.Diff(want, rose.Named("activityd_http_request_seconds", "activityd_http_requests_in_flight")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// A client's token never becomes a label, nor does anything of it.
func TestNothingOfASecretIsShown(t *testing.T) {
	token, secret, err := auth.Issue("homepage", auth.Read, auth.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	g := guard(t)
	tokens := auth.NewTokens([]auth.Token{token}) // after those of guard: its names are the labels
	g.bundle = setup(t, func(c *api.Config) { c.Auth = tokens })
	for _, authorization := range []string{"Bearer " + secret, "Bearer act_STRANGER", "Basic act_STRANGER", ""} {
		g.as(t, newRead(t), authorization)
	}
	got, hash := metricstest.Gather(t), strings.TrimPrefix(token.Hash.String(), "sha256:")
	if n := got[judged("homepage", auth.Allowed)]; n != 1 {
		t.Errorf("%v requests by the token, want 1", n)
	}
	for series := range got {
		for _, private := range []string{secret[4:10], hash[:6], "STRANGER"} {
			if strings.Contains(series, private) {
				t.Errorf("%s shows %s", series, private)
			}
		}
	}
}
