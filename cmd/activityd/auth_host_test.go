package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// askAs sends a request for another host than that of the URL, and returns status
// and body.
func askAs(t *testing.T, method, url, host string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	must(t, err)
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(all)
}

// A web page whose name points to this machine is no page of this machine.
func TestForeignHostsAreRefusedWithoutTokens(t *testing.T) {
	t.Parallel()
	p := spawn(t, "--metrics-listen=127.0.0.1:0")
	metrics := "http://" + p.awaitLog(t, "listening for metrics")["address"]
	reads := p.url + "/v1/users/1/recent-contact-photos"
	for _, test := range []struct {
		method, url, host string
		want              int
		detail            string
	}{
		{"GET", reads, "", 404, "no-such-member"}, // as the URL has it
		{"GET", reads, "localhost", 404, "no-such-member"},
		{"GET", reads, "attacker.example", 421, "--token-file"},
		{"POST", p.url + "/v1/tasks", "attacker.example", 421, "--token-file"},
		{"GET", p.url + "/healthz", "attacker.example", 200, "ok"},
		{"GET", metrics + "/metrics", "", 200, `activityd_access_requests_total{token="(none)",verdict="foreign_host"} 2`},
		{"GET", metrics + "/metrics", "attacker.example", 421, "Host: localhost"},
		{"GET", metrics + "/readyz", "attacker.example", 200, "ok"},
	} {
		if status, body := askAs(t, test.method, test.url, test.host); status != test.want || !strings.Contains(body, test.detail) {
			t.Errorf("%s %s for %q: %d %s, want %d and %q", test.method, test.url, test.host, status, body, test.want, test.detail)
		}
	}
}
