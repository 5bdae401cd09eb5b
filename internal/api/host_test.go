package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// Without tokens a web page whose name points to this machine gets no answer, and
// its visitor is not spoken for: nothing is read and nothing enqueued.
func TestWithoutTokensForeignHostsAreRefused(t *testing.T) {
	g, expect := guard(t), counting(t, "activityd_access_requests_total")
	for _, host := range []string{"attacker.example:8080", "attacker.example", "127.0.0.1.attacker.example:8080", "", "192.0.2.1:8080", "example.com"} {
		g.open(t)
		for _, r := range []*http.Request{newRead(t), newUpload(t)} {
			r.Host = host
			p := wantProblem(t, g.do(t, r), http.StatusMisdirectedRequest, "misdirected-request")
			for _, told := range []string{"localhost, a loopback address", "Host: localhost", "--token-file"} {
				if !strings.Contains(p.Detail, told) {
					t.Errorf("%q: %q does not say %q", host, p.Detail, told)
				}
			}
		}
		expect(host, metricstest.Samples{judged("(none)", auth.ForeignHost): 2})
		g.nothingDone(t)
	}
}

func TestWithoutTokensThisMachineIsServed(t *testing.T) {
	g, expect := guard(t), counting(t, "activityd_access_requests_total")
	for _, host := range []string{"localhost:8080", "localhost", "127.0.0.1:1", "[::1]:8080"} {
		g.open(t)
		for _, r := range []*http.Request{newRead(t), newUpload(t)} {
			r.Host = host
			if w := g.do(t, r); w.Code != http.StatusOK && w.Code != http.StatusAccepted {
				t.Errorf("%s: %d %s", host, w.Code, w.Body)
			}
		}
		expect(host, metricstest.Samples{judged("(none)", auth.Allowed): 2})
	}
}

// open has the server ask for no tokens.
func (g *guarded) open(t *testing.T) {
	t.Helper()
	read := g.reader.read
	g.bundle = setup(t)
	g.reader.read = read
}

// A page has no token, so a client with a token may use any name.
func TestWithTokensAnyHostIsServed(t *testing.T) {
	t.Parallel()
	g := guard(t)
	r := newRead(t)
	r.Host = "widget.example"
	if w := g.as(t, r, "Bearer "+readSecret); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Load balancers call a server as they like, or by no name at all.
func TestProbesAreAnsweredUnderAnyHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		for _, host := range []string{"10.1.2.3:8080", "app1", ""} {
			r := newRequest(t.Context(), http.MethodGet, path, http.NoBody)
			r.Host = host
			if w := b.do(t, r); w.Code != http.StatusOK {
				t.Errorf("%s for %q: %d %s", path, host, w.Code, w.Body)
			}
		}
	}
}
