package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// requests remembers what an observer is told.
type requests struct {
	mu       sync.Mutex
	inFlight int
	ended    []string
	judged   []string
	refused  int // enqueues
}

func (r *requests) ConnectionOpened()  {}
func (r *requests) ConnectionClosed()  {}
func (r *requests) ConnectionRefused() {}

func (r *requests) RequestBegan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
}

func (r *requests) RequestEnded(method, route string, status int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	if took <= 0 {
		status = -1
	}
	r.ended = append(r.ended, fmt.Sprintf("%s %s %d", method, route, status))
}

func (r *requests) CallerJudged(token string, verdict auth.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judged = append(r.judged, token+" "+string(verdict))
}

func (r *requests) EnqueueRefused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
}

// What the observer is told of a request never holds what the client made up.
func TestObserverIsToldTheRoute(t *testing.T) {
	t.Parallel()
	r := &requests{}
	b := setup(t, func(c *api.Config) { c.Observer = r })
	b.reader.read = func(_ context.Context, v contacts.Viewer, _ int) (recent.Answer, error) {
		switch {
		case r.inFlight != 1:
			t.Errorf("%d requests in flight, want 1", r.inFlight)
		case v.ID == 2:
			return recent.Answer{}, contacts.ErrNoMember
		case v.ID == 3:
			panic("boom")
		}
		return recent.Answer{}, nil
	}
	for _, path := range []string{
		"/v1/users/1/recent-contact-photos", "/v1/users/2/recent-contact-photos", "/v1/users/3/recent-contact-photos",
		"/v1/users/1/other", "/made/up", "/v1/tasks",
	} {
		b.server.Handler().ServeHTTP(httptest.NewRecorder(), newRequest(t.Context(), http.MethodGet, path, http.NoBody))
	}
	const read = "GET /v1/users/:id/recent-contact-photos "
	want := []string{read + "200", read + "404", read + "500", "GET unmatched 404", "GET unmatched 404", "GET /v1/tasks 405"}
	if !slices.Equal(r.ended, want) {
		t.Errorf("told of\n%q, want\n%q", r.ended, want)
	}
	if r.inFlight != 0 {
		t.Errorf("%d in flight afterwards", r.inFlight)
	}
}

// A handler that aborts its response leaves no request in flight.
func TestObserverIsToldOfAbortedRequests(t *testing.T) {
	t.Parallel()
	r := &requests{}
	b := setup(t, func(c *api.Config) { c.Observer = r })
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { panic(http.ErrAbortHandler) }
	func() {
		defer func() { _ = recover() }()
		b.get(t, "/v1/users/1/recent-contact-photos")
	}()
	if r.inFlight != 0 || len(r.ended) != 1 {
		t.Errorf("%d in flight, %d ended", r.inFlight, len(r.ended))
	}
}
