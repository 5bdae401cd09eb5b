package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/demo/world"
)

// tinyWorld is the demo's world, made small.
func tinyWorld() world.Spec {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks = 410, 2400, 20
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec
}

// runTheDemo starts it and returns its address; it stops with the test.
func runTheDemo(t *testing.T, o demoOptions) *running {
	t.Helper()
	c := &config{role: roleAll}
	f := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	c.listenFlag(f, "")
	c.serverFlags(f)
	c.indexFlags(f)
	c.logFlags(f)
	must(t, f.Parse([]string{"--listen=127.0.0.1:0"}))
	ctx, cancel := context.WithCancel(context.Background())
	said, ended := &notes{}, make(chan error, 1)
	go func() { ended <- runDemo(ctx, c, o, tinyWorld(), said, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("demo: %v", err)
		}
	})
	r := &running{}
	eventually(t, "the demo prints its address", func() bool {
		if len(ended) > 0 {
			t.FailNow() // the cleanup reports the error
		}
		_, rest, _ := strings.Cut(said.String(), "The demo is at ")
		url, _, printed := strings.Cut(rest, "/  ")
		r.url = url
		return printed
	})
	return r
}

func TestDemo(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		options demoOptions
		engine  string
		pushes  bool
	}{
		"imitations":      {demoOptions{embedded: true, rate: 20}, "miniredis", false},
		"private servers": {demoOptions{rate: 20}, "private to this demo", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runTheDemo(t, want.options)
			var status int
			if page := r.get(t, "/", &status); status != 200 || !strings.Contains(page, want.engine) {
				t.Errorf("page: %d, does not name %q", status, want.engine)
			}
			eventually(t, "the index answers", func() bool { return r.read(t, 1).Source == "index" })
			if want.pushes {
				r.isNotified(t)
			} else if page := r.get(t, "/", &status); !strings.Contains(page, "Push needs the real servers") {
				t.Errorf("the page says nothing of push:\n%s", page)
			}
			r.get(t, "/readyz", &status)
			if status != 200 {
				t.Errorf("readyz: %d", status)
			}
			r.get(t, "/nonsense", &status)
			if status != 404 {
				t.Errorf("nonsense: %d", status)
			}
		})
	}
}

// isNotified fails the test unless an upload of a contact reaches the phone and the browser of
// the first viewer. The traffic may let a contact block the viewer: there are some uploads.
func (r *running) isNotified(t *testing.T) {
	t.Helper()
	for range 5 {
		form := url.Values{"viewer": {"1"}, "owner": {"other"}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/demo/actions/upload", strings.NewReader(form.Encode()))
		must(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("X-Requested-With", "fetch")
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			t.Fatalf("upload: %s", response.Status)
		}
	}
	eventually(t, "both devices are notified", func() bool {
		var status int
		return strings.Count(r.get(t, "/demo/widget?viewer=1", &status), "<code>accepted</code>") >= 2 // the words of the receipts
	})
}
