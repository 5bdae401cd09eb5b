package api_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/api"
)

func healthy(context.Context) api.Health {
	return api.Health{MySQL: api.Component{Usable: true}, Redis: api.Component{Usable: true}}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	up, away := api.Component{Usable: true}, api.Component{Detail: "it is away"}
	for name, test := range map[string]struct {
		health api.Health
		status int
		body   string
	}{
		"all is well": {api.Health{MySQL: up, Redis: up}, 200, `{"status":"ok","components":{"mysql":{"status":"ok"},"redis":{"status":"ok"}}}`},
		"no Redis": {
			api.Health{MySQL: up, Redis: away},
			200,
			`{"status":"degraded","components":{"mysql":{"status":"ok"},"redis":{"status":"unavailable","detail":"it is away"}}}`,
		},
		"no MySQL": {
			api.Health{MySQL: away, Redis: up},
			503,
			`{"status":"unavailable","components":{"mysql":{"status":"unavailable","detail":"it is away"},"redis":{"status":"ok"}}}`,
		},
		"no queue of its own": {
			api.Health{MySQL: up, Queue: &away, Redis: up},
			200,
			`{"status":"degraded","components":{"mysql":{"status":"ok"},"queue":{"status":"unavailable","detail":"it is away"},"redis":{"status":"ok"}}}`,
		},
		"a queue of its own alone": {
			api.Health{MySQL: away, Queue: &up, Redis: up},
			503,
			`{"status":"unavailable","components":{"mysql":{"status":"unavailable","detail":"it is away"},"queue":{"status":"ok"},"redis":{"status":"ok"}}}`,
		},
		"neither": {api.Health{}, 503, `{"status":"unavailable","components":{"mysql":{"status":"unavailable"},"redis":{"status":"unavailable"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.checker = func(context.Context) api.Health { return test.health }
			if w := b.get(t, "/readyz"); w.Code != test.status || w.Body.String() != test.body {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, test.status, test.body)
			}
		})
	}
}

func TestReadyzDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.checker = func(ctx context.Context) api.Health {
			<-ctx.Done()
			return api.Health{MySQL: api.Component{Detail: "no answer"}}
		}
		start := time.Now()
		if w := b.get(t, "/readyz"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if took := time.Since(start); took != api.CheckTimeout {
			t.Errorf("took %s, want %s", took, api.CheckTimeout)
		}
	})
}

func TestProbesTakeHEAD(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.checker = func(context.Context) api.Health { return api.Health{} }
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if w := b.do(t, newRequest(t.Context(), http.MethodHead, path, http.NoBody)); w.Code != want {
			t.Errorf("HEAD %s: %d, want %d", path, w.Code, want)
		}
	}
}

// A process that lives is not restarted because its database is away.
func TestHealthzAsksNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.checker = func(context.Context) api.Health {
		t.Error("the servers were asked")
		return api.Health{}
	}
	if w := b.get(t, "/healthz"); w.Code != http.StatusOK || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
