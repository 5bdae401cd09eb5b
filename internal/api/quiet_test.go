package api_test

import (
	"net/http"
	"strings"
	"testing"
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
		for _, open := range []string{"/healthz", "/readyz", "/openapi.yaml", "/widget.js"} {
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
	if got := strings.Count(g.log.String(), `"request_id"`); got != 10*many+1 {
		t.Errorf("%d requests were logged at any level, want all %d", got, 10*many+1)
	}
}
