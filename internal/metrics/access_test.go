package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/tasks"
)

const callers = "activityd_access_requests_total"

// of is a series of callers.
func of(token string, v auth.Verdict) string {
	return fmt.Sprintf("%s{token=%q,verdict=%q}", callers, token, v)
}

// strangers are the series of those without a token, which are always there.
func strangers() samples {
	return samples{
		of("(none)", auth.Allowed): 0, of("(none)", auth.NoToken): 0, of("(none)", auth.ForeignHost): 0,
		of("(unknown)", auth.UnknownToken): 0,
	}
}

// with returns the samples with some more, or others.
func (s samples) with(more samples) samples {
	maps.Copy(s, more)
	return s
}

// A token has series as long as it is in use, from 0 on.
func TestTokensComeAndGo(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	want := func(more samples) {
		t.Helper()
		if diff := cmp.Diff(strangers().with(more), gather(t, m).named(callers)); diff != "" {
			t.Error(diff)
		}
	}
	want(nil)
	m.Access.TokensTaken([]string{"a", "b"})
	fresh := func(name string) samples {
		return samples{of(name, auth.Allowed): 0, of(name, auth.WrongScope): 0, of(name, auth.OverLimit): 0}
	}
	want(fresh("a").with(fresh("b")))
	m.HTTP.CallerJudged("a", auth.Allowed)
	m.HTTP.CallerJudged("b", auth.OverLimit)
	m.Access.TokensTaken([]string{"c", "a"}) // what a had counts on
	want(fresh("a").with(fresh("c")).with(samples{of("a", auth.Allowed): 1}))
	m.HTTP.CallerJudged("b", auth.Allowed) // revoked while it was looked at
	m.HTTP.CallerJudged("", auth.UnknownToken)
	m.HTTP.CallerJudged("", auth.NoToken)
	m.HTTP.CallerJudged("", auth.ForeignHost)
	m.HTTP.CallerJudged("", "strange")
	m.Access.TokensTaken(nil)
	want(samples{
		of("(unknown)", auth.Allowed): 1, of("(unknown)", auth.UnknownToken): 1,
		of("(none)", auth.NoToken): 1, of("(none)", auth.ForeignHost): 1, of("(none)", "other"): 1,
	})
}

// What clients send as a token never becomes a label, nor does anything of it.
func TestNothingOfASecretIsShown(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	token, secret, err := auth.Issue("homepage", auth.Read, auth.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(token.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, _, err := auth.LoadTokens(path, auth.Options{Log: slog.New(slog.DiscardHandler), Observer: m.Access})
	if err != nil {
		t.Fatal(err)
	}
	server := api.New(api.Config{
		Reader: unread{}, Enqueuer: tasks.NewMemoryQueue(tasks.QueueOptions{}, time.Now), Checker: func(context.Context) api.Health { return api.Health{} },
		Observer: m.HTTP, Auth: tokens, Logger: slog.New(slog.DiscardHandler),
	})
	for _, authorization := range []string{"Bearer " + secret, "Bearer act_STRANGER", "Basic act_STRANGER", ""} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/users/1/recent-contact-photos", http.NoBody)
		r.Header.Set("Authorization", authorization)
		server.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	got := gather(t, m)
	want := strangers().with(samples{
		of("homepage", auth.Allowed): 1, of("homepage", auth.WrongScope): 0, of("homepage", auth.OverLimit): 0,
		of("(unknown)", auth.UnknownToken): 1, of("(none)", auth.NoToken): 2,
	})
	if diff := cmp.Diff(want, got.named(callers)); diff != "" {
		t.Error(diff)
	}
	hash := strings.TrimPrefix(token.Hash.String(), "sha256:")
	for series := range got {
		for _, private := range []string{secret[4:10], hash[:6], "STRANGER"} {
			if strings.Contains(series, private) {
				t.Errorf("%s shows %s", series, private)
			}
		}
	}
}

// The end of the certificate is shown when there is one, and that of the one in use.
func TestTheEndOfTheCertificate(t *testing.T) {
	t.Parallel()
	const end = "activityd_tls_certificate_not_after_timestamp_seconds"
	m := metrics.New(metrics.Options{})
	if got := gather(t, m).named(end); len(got) > 0 {
		t.Errorf("without a certificate: %v", got)
	}
	for _, unix := range []int64{1_900_000_000, 1_800_000_000} {
		m.Access.CertificateTaken(time.Unix(unix, 999))
		gather(t, m).has(t, samples{end: float64(unix)})
	}
}
