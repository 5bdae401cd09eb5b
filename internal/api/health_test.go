package api_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

func healthy() api.Health {
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
		"a busy MySQL": {
			api.Health{MySQL: api.Component{Usable: true, Detail: "busy"}, Redis: up},
			200,
			`{"status":"degraded","components":{"mysql":{"status":"degraded","detail":"busy"},"redis":{"status":"ok"}}}`,
		},
		"a part of Redis": {
			api.Health{MySQL: up, Redis: api.Component{
				Usable: true, Detail: "one of three", Away: 1 / 3., Nodes: []api.Node{{Address: "r1:6379", Detail: "it is away"}},
			}},
			200,
			`{"status":"degraded","components":{"mysql":{"status":"ok"},"redis":{"status":"degraded","detail":"one of three","nodes_away":0.3333,` +
				`"nodes":[{"address":"r1:6379","detail":"it is away"}]}}}`,
		},
		"a part of Redis, and no MySQL": {
			api.Health{MySQL: away, Redis: api.Component{Usable: true, Detail: "one slot", Away: 1 / 16384.}},
			503,
			`{"status":"unavailable","components":{"mysql":{"status":"unavailable","detail":"it is away"},` +
				`"redis":{"status":"degraded","detail":"one slot","nodes_away":0.0001}}}`,
		},
		"neither": {api.Health{}, 503, `{"status":"unavailable","components":{"mysql":{"status":"unavailable"},"redis":{"status":"unavailable"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.health = test.health
			if w := b.get(t, "/readyz"); w.Code != test.status || w.Body.String() != test.body {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, test.status, test.body)
			}
		})
	}
}

// The addresses of the servers are for operators.
func TestReadyzNamesNodesToOperators(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open          bool // without tokens
		authorization []string
		host, from    string
		forwarded     bool
		want          bool
	}{
		"no token":                {host: "localhost"},
		"empty":                   {authorization: []string{""}, host: "localhost"},
		"reader":                  {authorization: []string{"Bearer " + readSecret}, host: "localhost"},
		"writer":                  {authorization: []string{"Bearer " + writeSecret}, host: "localhost"},
		"stranger":                {authorization: []string{"Bearer x"}, host: "localhost"},
		"two tokens":              {authorization: []string{"Bearer " + adminSecret, "Bearer x"}, host: "localhost"},
		"admin":                   {authorization: []string{"Bearer " + adminSecret}, host: "app1", from: "10.0.0.9:50000", want: true},
		"open":                    {open: true, host: "localhost", want: true},
		"open, under a name":      {open: true, host: "attacker.example"},
		"open, through a proxy":   {open: true, host: "localhost", forwarded: true},
		"open, from another host": {open: true, host: "localhost", from: "10.0.0.9:50000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guard(t)
			if test.open {
				g.bundle = setup(t)
			}
			g.health = api.Health{MySQL: api.Component{Usable: true}, Redis: api.Component{Usable: true, Away: 0.5, Nodes: []api.Node{{Address: "secret:6379"}}}}
			r := newRequest(t.Context(), http.MethodGet, "/readyz", http.NoBody)
			r.Host, r.RemoteAddr = test.host, cmp.Or(test.from, r.RemoteAddr)
			if test.forwarded {
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
			}
			w := g.as(t, r, test.authorization...)
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "secret:6379") != test.want || !strings.Contains(w.Body.String(), "0.5") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// HEAD is GET without a body, on every route and at any status. net/http leaves the body out.
func TestHEADIsGET(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.health = api.Health{}
	server := httptest.NewServer(b.server.Handler())
	t.Cleanup(server.Close)
	ask := func(method, path string) (*http.Response, int) {
		request := newRequest(t.Context(), method, server.URL+path, http.NoBody)
		request.RequestURI = ""
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, len(body)
	}
	for _, path := range []string{
		readPath, readPath + "?limit=none", devicesPath, settingsPath, mutesPath, mePath, "/healthz", "/readyz", "/openapi.yaml", "/widget.js", "/none", "/v1/tasks",
	} {
		get, size := ask(http.MethodGet, path)
		head, none := ask(http.MethodHead, path)
		if head.StatusCode != get.StatusCode || none != 0 || size == 0 || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %v and %d bytes, want as GET: %d %v", path, head.StatusCode, head.Header, none, get.StatusCode, get.Header)
		}
	}
}

// A process that stops says so to load balancers, and answers all else.
func TestReadyzSaysStopping(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Stopping()
	if w := b.get(t, "/readyz"); w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(w.Body.String(), `{"status":"stopping"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := b.get(t, readPath); w.Code != http.StatusOK || w.Header().Get("Connection") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	b.server.CloseConnections()
	if w := b.get(t, readPath); w.Code != http.StatusOK || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// A process that lives is not restarted because its database is away.
func TestHealthzAsksForNoServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.health = api.Health{}
	if w := b.get(t, "/healthz"); w.Code != http.StatusOK || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// How far behind the tasks are is for operators: it says when members upload, hidden photos
// included.
func TestOperatorsSeeHowFarBehindTasksAre(t *testing.T) {
	t.Parallel()
	const late = `"behind_seconds":12.5`
	g := guard(t, func(c *api.Config) {
		behind := api.NewBehind(map[string]time.Duration{"default": 12500 * time.Millisecond, "fan_out": 0})
		c.Behind = func() *api.Behind { return &behind }
	})
	g.reader.explain = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		trace := recent.Trace{Candidates: []recent.Candidate{}, Proof: recent.ByNext}
		return recent.Answer{Source: recent.FromIndex, Trace: trace}, nil
	}
	for _, c := range []struct{ path, secret, want, without string }{
		{readPath, adminSecret, `"source":"index",` + late, ""},
		{readPath + "?explain=1", adminSecret, late, ""},
		{readPath, readSecret, "", "behind"},
		{"/readyz", adminSecret, `"behind_seconds":{"default":12.5,"fan_out":0}`, ""},
		{"/readyz", readSecret, `"status":"ok"`, "behind"},
		{"/readyz", writeSecret, `"status":"ok"`, "behind"},
	} {
		w := g.as(t, newRequest(t.Context(), http.MethodGet, c.path, http.NoBody), "Bearer "+c.secret)
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, c.want) || c.without != "" && strings.Contains(body, c.without) {
			t.Errorf("%s as %s: %d %s, want %s", c.path, c.secret, w.Code, body, c.want)
		}
	}
	r := newMe(t, http.MethodGet, mePath, "")
	if w := g.do(t, r); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "behind") {
		t.Errorf("a viewer: %d %s", w.Code, w.Body)
	}
	g.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		return recent.Answer{Source: recent.FromDatabase}, nil
	}
	w := g.as(t, newRequest(t.Context(), http.MethodGet, readPath, http.NoBody), "Bearer "+adminSecret)
	if body := w.Body.String(); !strings.Contains(body, `"source":"database"`) || strings.Contains(body, "behind") {
		t.Errorf("an answer from the database: %s", body)
	}
}
