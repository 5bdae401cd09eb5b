package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/api"
)

// loud are the lines of the log that are seen at the level info.
func (l *logBuffer) loud(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for _, line := range l.lines(t) {
		if line["level"] != "DEBUG" {
			lines = append(lines, line)
		}
	}
	return lines
}

// However much strangers send, the log has a line at once and then a line a
// minute, with the count of each kind.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	g := guard(t)
	const many = 100
	g.get(t, "/nonsense")
	for range many {
		g.as(t, newRead(t))
		g.as(t, newRead(t), "Bearer guess")
		g.as(t, newUpload(t), "Bearer "+readSecret)
		g.as(t, newRead(t), "Bearer "+limitedSecret) // the first two are let through, and answered
		g.get(t, "/nonsense")
		g.do(t, newRequest(t.Context(), http.MethodDelete, "/v1/tasks", http.NoBody))
		for _, open := range []string{"/", "/healthz", "/readyz", "/openapi.yaml", "/widget.js"} {
			g.get(t, open)
		}
	}
	if err := g.server.Close(); err != nil { // it ends the minute
		t.Fatal(err)
	}
	summaries := g.log.loud(t)
	if len(summaries) != 2 || summaries[0]["msg"] != "requests refused" || summaries[0]["unmatched"] != 1.0 {
		t.Fatalf("summed up %v, want one at once and one at the end", summaries)
	}
	for kind, want := range map[string]float64{"no_token": many, "unknown_token": many, "wrong_scope": many, "limit": many - 2, "unmatched": 2 * many} {
		if summaries[1][kind] != want {
			t.Errorf("%s: %v, want %v", kind, summaries[1][kind], want)
		}
	}
	if got := strings.Count(g.log.String(), `"request_id"`); got != 11*many+1 {
		t.Errorf("%d requests were logged at any level, want all %d", got, 11*many+1)
	}
}

// Nor do clients of a server without tokens under a foreign name.
func TestForeignHostsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 100 {
		r := newRead(t)
		r.Host = "attacker.example"
		wantProblem(t, b.do(t, r), http.StatusMisdirectedRequest, "misdirected-request")
	}
	if lines := b.log.loud(t); len(lines) != 1 || lines[0]["foreign_host"] != 1.0 {
		t.Errorf("logged %v", lines)
	}
}

// Nonsense is answered by net/http itself, and not logged.
func TestNonsenseOverTheWireDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	plain := serve(t)
	for range 20 {
		for _, nonsense := range []string{
			"nonsense\r\n\r\n",
			"GET / HTTP/1.1\r\n\r\n",                                    // no Host
			"GET / HTTP/9.9\r\nHost: a\r\n\r\n",                         // 505
			"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", // 501
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", api.MaxHeader+8<<10) + "\r\n\r", // 431
		} {
			if r, body := answer(t, plain.dial(t, nonsense)); r.StatusCode < 400 {
				t.Errorf("%.100q: %d %s", nonsense, r.StatusCode, body)
			}
		}
	}
	encrypted, _ := serveTLS(t)
	for range 100 {
		answer(t, encrypted.dial(t, plainRead)) // 400: Client sent an HTTP request to an HTTPS server
	}
	for _, s := range []*serving{plain, encrypted} {
		if err := s.server.Shutdown(t.Context()); err != nil { // it waits for the connections to end
			t.Fatal(err)
		}
		if lines := s.log.loud(t); len(lines) > 2 { // at once, and for the rest
			t.Errorf("logged %v", lines)
		}
	}
	if lines := encrypted.log.loud(t); len(lines) == 0 || lines[0]["protocol"] != 1.0 {
		t.Errorf("of TLS, logged %v", lines)
	}
}
