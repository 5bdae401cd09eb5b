package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// refusing is a setup whose reader refuses all reads, and says so beforehand.
func refusing(t testing.TB, options ...func(*api.Config)) *bundle {
	t.Helper()
	b := setup(t, append(options, func(c *api.Config) { c.Refuses = func() bool { return true } })...)
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		return recent.Answer{}, fmt.Errorf("deep down: %w", recent.ErrBusy)
	}
	return b
}

// countedViewers counts how many tokens are verified.
type countedViewers struct {
	api.Viewers

	verified int
}

func (c *countedViewers) Check(token string) (member.ID, error) {
	c.verified++
	return c.Viewers.Check(token)
}

// A read that is refused costs no verification of a viewer's token.
func TestARefusedReadVerifiesNoToken(t *testing.T) {
	t.Parallel()
	verified := &countedViewers{}
	b := refusing(t, viewers, func(c *api.Config) { verified.Viewers, c.Viewers = c.Viewers, verified })
	for name, r := range map[string]*http.Request{
		"operator": newRequest(t.Context(), http.MethodGet, readPath+"?explain=1", http.NoBody),
		"viewer":   newMe(t, http.MethodGet, mePath, ""),
	} {
		if w := b.do(t, r); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || verified.verified > 0 {
			t.Errorf("%s: %d %s, %d verified", name, w.Code, w.Body, verified.verified)
		}
	}
}

// A refusal has few allocations; BenchmarkRefused says how long they take.
func TestARefusalIsCheap(t *testing.T) {
	b := refusing(t)
	server, r := b.server.Handler(), newRequest(t.Context(), http.MethodGet, readPath, http.NoBody)
	const most = 40 // the pools of the race detector forget
	if n := testing.AllocsPerRun(100, func() { server.ServeHTTP(&discard{header: make(http.Header)}, r) }); n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
	if lines := b.log.loud(t); len(lines) != 1 || lines[0]["msg"] != "requests refused" {
		t.Errorf("of 100 refusals the log says %v", lines)
	}
}

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func benchmark(b *testing.B, with *bundle, want int) {
	b.Helper()
	server := with.server.Handler()
	for name, r := range map[string]*http.Request{
		"member": newRequest(b.Context(), http.MethodGet, readPath, http.NoBody),
		"viewer": newMe(b, http.MethodGet, mePath, ""),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: make(http.Header)}
				if server.ServeHTTP(w, r); w.status != want {
					b.Fatalf("status %d", w.status)
				}
			}
		})
	}
}

// BenchmarkRefused is the cost of a refused read, but for net/http. BenchmarkAnswered is the cost of
// an answered read, but for net/http, Redis and MySQL.
func BenchmarkRefused(b *testing.B) {
	benchmark(b, refusing(b, viewers), http.StatusServiceUnavailable)
}

func BenchmarkAnswered(b *testing.B) { benchmark(b, setup(b, viewers), http.StatusOK) }
