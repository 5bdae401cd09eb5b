package api_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// fakeLimiter does as its limiter, unless err is set.
type fakeLimiter struct {
	*admit.Limiter

	err     error
	entered int
}

func (f *fakeLimiter) Enter(ctx context.Context) (*admit.Place, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.entered++
	return f.Limiter.Enter(ctx)
}
func (f *fakeLimiter) Refuses() bool { return f.err != nil }
func (f *fakeLimiter) Busy() bool    { return f.err != nil }

func limitedBy(f api.Limiter) func(*api.Config) { return func(c *api.Config) { c.Limiter = f } }

// countedViewers counts how many tokens are verified.
type countedViewers struct {
	api.Viewers

	verified int
}

func (c *countedViewers) Check(token string) (member.ID, error) {
	c.verified++
	return c.Viewers.Check(token)
}

// A read that is refused asks nothing of anything that is behind the API, which its Config is all of:
// neither the Reader, nor that a viewer's token be verified. The answer is what an [admit.ErrBusy] of
// the Reader is answered with.
func TestARefusedReadAsksNothing(t *testing.T) {
	t.Parallel()
	limiter := &fakeLimiter{}
	asked := 0
	verified := &countedViewers{}
	b := setup(t, viewers, func(c *api.Config) {
		verified.Viewers = c.Viewers
		c.Limiter, c.Viewers = limiter, verified
	})
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		asked++
		return recent.Answer{}, fmt.Errorf("deep down: %w", recent.ErrBusy)
	}
	for name, request := range map[string]func() *http.Request{
		"operator": func() *http.Request {
			return newRequest(t.Context(), http.MethodGet, readPath+"?explain=1", http.NoBody)
		},
		"viewer": func() *http.Request { return newMe(t, http.MethodGet, mePath, "") },
		"unverified": func() *http.Request {
			r := newMe(t, http.MethodGet, mePath, "")
			r.Header.Set("Authorization", "Bearer a.b.c")
			r.Header.Set("X-Request-ID", "mine")
			return r
		},
	} {
		limiter.err, asked, verified.verified = nil, 0, 0
		ofReader := b.do(t, request())
		if name != "unverified" && asked != 1 {
			t.Errorf("%s: the reader was asked %d times", name, asked)
		}
		limiter.err, asked, verified.verified = admit.ErrBusy, 0, 0
		refused := b.do(t, request())
		if asked > 0 || verified.verified > 0 {
			t.Errorf("%s: %d reads and %d tokens verified for a refused one", name, asked, verified.verified)
		}
		if name == "unverified" {
			if id := refused.Header().Get("X-Request-ID"); refused.Code != http.StatusServiceUnavailable || id != "mine" {
				t.Errorf("%s: %d, id %q", name, refused.Code, id)
			}
			continue
		}
		if refused.Code != http.StatusServiceUnavailable || !bytes.Equal(refused.Body.Bytes(), ofReader.Body.Bytes()) {
			t.Errorf("%s: %d %s\nwant %d %s", name, refused.Code, refused.Body, ofReader.Code, ofReader.Body)
		}
		if diff := cmp.Diff(fixed(ofReader), fixed(refused)); diff != "" {
			t.Errorf("%s: the header (-of the Reader's error +refused):\n%s", name, diff)
		}
	}
}

// fixed returns the header of an answer, without its varying fields.
func fixed(w *httptest.ResponseRecorder) http.Header {
	h := w.Header().Clone()
	for name := range maps.Keys(h) {
		if slices.Contains([]string{http.CanonicalHeaderKey("X-Request-ID"), "Retry-After", "Content-Length"}, name) {
			h[name] = nil
		}
	}
	h["Content-Length"] = nil // net/http adds it
	return h
}

// The cost of a refusal does not depend on the parts behind the API. It has few allocations, and
// BenchmarkRefused says how long they take.
func TestARefusalIsCheap(t *testing.T) {
	b := setup(t, limitedBy(&fakeLimiter{err: admit.ErrBusy}))
	server, r := b.server.Handler(), newRequest(t.Context(), http.MethodGet, readPath, http.NoBody)
	const most = 24
	if n := testing.AllocsPerRun(100, func() { server.ServeHTTP(&discard{header: make(http.Header)}, r) }); n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
	if lines := b.log.loud(t); len(lines) != 1 || lines[0]["msg"] != "requests refused" {
		t.Errorf("of 100 refusals the log says %v", lines)
	}
}

func TestRefusedReadsAreCounted(t *testing.T) {
	const series = `activityd_http_requests_total{code="503",method="GET",route="/v1/users/:id/recent-contact-photos"}`
	b := setup(t, limitedBy(&fakeLimiter{err: admit.ErrBusy}))
	before := metricstest.Gather(t)
	for range 3 {
		b.get(t, readPath)
	}
	since := metricstest.Gather(t).Since(before)
	for name, want := range map[string]float64{
		series:                         3,
		judged("(none)", auth.Allowed): 3, "activityd_http_requests_in_flight": 0,
	} {
		if since[name] != want {
			t.Errorf("%s: %v, want %v", name, since[name], want)
		}
	}
}

// However its path is spelled, a read that is answered has a place, and leaves it, whatever becomes
// of it. A refused request has none.
func TestEachReadHasAPlace(t *testing.T) {
	t.Parallel()
	limiter := &fakeLimiter{Limiter: admit.New(1)}
	b := setup(t, viewers, limitedBy(limiter))
	reads, fails := 0, false
	b.reader.read = func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
		reads++
		if admit.PlaceOf(ctx) == nil {
			t.Error("a read has no place")
		}
		if fails {
			panic("oh")
		}
		return recent.Answer{Source: recent.FromIndex}, nil
	}
	for path, answered := range map[string]bool{
		"/v1/users/5/recent-contact-photos":           true,
		"/v1/users/%35/recent-contact-photos":         false,
		"/v1/users/5/recent-contact-photos?limit=2":   true,
		"/v1/users/5/recent%2Dcontact-photos":         false,
		"/v1/users/5/recent-contact-photos/":          false,
		"/v1/users/5%2F/recent-contact-photos":        false,
		"/v1/users/5/6/recent-contact-photos":         false,
		"/v1/users//recent-contact-photos":            false,
		"/v1//users/5/recent-contact-photos":          false,
		"/v1/users/05/recent-contact-photos":          false,
		"/v1/users/me/recent-contact-photos":          false,
		"/v1/users/5%2Frecent-contact-photos":         false,
		"/v1/users/5/devices":                         false,
		"/v1/users/5/devices?/recent-contact-photos":  false,
		"/v1/users/5%2Frecent-contact-photos/devices": false,
		"/v1/me/recent-contact-photos":                true,
		"/v1/me/recent-contact-photos?limit=2":        true,
		"/v1/me/recent-contact-photos/":               false,
		"/v1/%6de/recent-contact-photos":              false,
		"/v1/me/%72ecent-contact-photos":              false,
		"/V1/me/recent-contact-photos":                false,
	} {
		for _, fails = range []bool{false, true} {
			reads = 0
			r := newMe(t, http.MethodGet, path, "")
			if strings.HasPrefix(path, "/v1/users") {
				r = newRequest(t.Context(), http.MethodGet, path, http.NoBody)
			}
			b.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
			if (reads == 1) != answered {
				t.Errorf("%s: read %d times", path, reads)
			}
			place, err := limiter.Limiter.Enter(t.Context())
			if err != nil {
				t.Fatalf("%s: the place was not left: %v", path, err)
			}
			place.Leave(false)
		}
	}
	limiter.entered = 0
	for _, r := range []*http.Request{
		newMe(t, http.MethodGet, readPath, ""), // for a foreign host
		newRequest(t.Context(), http.MethodGet, mePath, http.NoBody),
		newRequest(t.Context(), http.MethodGet, "/readyz", http.NoBody),
	} {
		b.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	if limiter.entered > 0 {
		t.Errorf("%d places", limiter.entered)
	}
}

// A client that leaves while its read waits is logged as gone.
func TestAClientLeavesWhileItsReadWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := admit.New(1)
		b := setup(t, limitedBy(limiter))
		place, err := limiter.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		go b.server.Handler().ServeHTTP(w, newRequest(ctx, http.MethodGet, readPath, http.NoBody))
		synctest.Wait()
		cancel()
		synctest.Wait()
		if w.Code != 499 || limiter.Busy() {
			t.Errorf("status %d", w.Code)
		}
		place.Leave(false)
	})
}

// A read waits for its place in the time of its request.
func TestAReadWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := admit.New(1)
		b := setup(t, limitedBy(limiter))
		place, err := limiter.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(40*time.Millisecond, func() { place.Leave(false) })
		b.reader.read = func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
			if end, _ := ctx.Deadline(); end.Sub(start) != api.DefaultRequestTimeout {
				t.Errorf("it has %v", end.Sub(start))
			}
			return recent.Answer{Source: recent.FromIndex}, nil
		}
		if w := b.get(t, readPath); w.Code != http.StatusOK || time.Since(start) != 40*time.Millisecond {
			t.Errorf("status %d after %v", w.Code, time.Since(start))
		}
	})
}

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func benchmark(b *testing.B, limiter api.Limiter, request *http.Request, want int) {
	b.Helper()
	server := setup(b, viewers, limitedBy(limiter), func(c *api.Config) { c.Logger = nil }).server.Handler()
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{header: make(http.Header)}
		server.ServeHTTP(w, request)
		if w.status != want {
			b.Fatalf("status %d", w.status)
		}
	}
}

// BenchmarkRefused is the cost of a refused read, but for net/http. BenchmarkAnswered is the cost of
// an answered read, but for net/http, Redis and MySQL.
func BenchmarkRefused(b *testing.B) {
	l := &fakeLimiter{err: admit.ErrBusy}
	b.Run("member", func(b *testing.B) {
		benchmark(b, l, newRequest(b.Context(), http.MethodGet, readPath, http.NoBody), http.StatusServiceUnavailable)
	})
	b.Run("viewer", func(b *testing.B) {
		benchmark(b, l, newMe(b, http.MethodGet, mePath, ""), http.StatusServiceUnavailable)
	})
}

func BenchmarkAnswered(b *testing.B) {
	l := admit.New(24)
	b.Run("member", func(b *testing.B) {
		benchmark(b, l, newRequest(b.Context(), http.MethodGet, readPath, http.NoBody), http.StatusOK)
	})
	b.Run("viewer", func(b *testing.B) {
		benchmark(b, l, newMe(b, http.MethodGet, mePath, ""), http.StatusOK)
	})
}
