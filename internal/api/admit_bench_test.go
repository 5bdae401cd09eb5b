package api_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
)

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func benchmark(b *testing.B, want int, configure func(*api.Config), r *http.Request) {
	b.Helper()
	server := setup(b, configure).server.Handler()
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{header: make(http.Header)}
		server.ServeHTTP(w, r)
		if w.status != want {
			b.Fatalf("status %d", w.status)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	r := newRequest(b.Context(), http.MethodGet, readPath, http.NoBody)
	benchmark(b, http.StatusServiceUnavailable, func(c *api.Config) { c.Limiter = refusing{} }, r)
}

func BenchmarkAnswered(b *testing.B) {
	r := newRequest(b.Context(), http.MethodGet, readPath, http.NoBody)
	benchmark(b, http.StatusOK, func(c *api.Config) { c.Limiter = admit.New(admit.Options{Uncounted: true}) }, r)
}

var _ = auth.Read

type refusing struct{ admit.Unlimited }

func (refusing) Enter(context.Context, admit.Class, admit.By) (admit.Place, error) {
	return nil, admit.ErrBusy
}
