package metrics_test

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/metrics"
)

// serve serves until the test ends and returns the server and its URL.
func serve(t *testing.T, m *metrics.Metrics) (server *metrics.Server, url string) {
	t.Helper()
	probes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "probe of "+r.URL.Path) })
	server = metrics.NewServer(m, probes, slog.New(slog.DiscardHandler))
	if server.Addr() != nil {
		t.Error("an address before Listen")
	}
	if err := server.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server, "http://" + server.Addr().String()
}

// client keeps no connections, which goleak would find.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

func get(t *testing.T, url string, header ...string) (response *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	if response, err = client.Do(request); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reader := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if reader, err = gzip.NewReader(reader); err != nil {
			t.Fatal(err)
		}
	}
	all, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(all)
}

func TestTheListenerServes(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	touch(t, m)
	_, url := serve(t, m)
	for path, want := range map[string]string{
		"/metrics": "activityd_tasks_dropped_total 2", "/healthz": "probe of /healthz", "/readyz": "probe of /readyz", "/": `href="/metrics"`,
	} {
		if response, body := get(t, url+path); response.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q in %s", path, response.Status, want, body)
		}
	}
	for _, path := range []string{"/v1/tasks", "/debug/pprof/", "/metrics/more"} {
		if response, _ := get(t, url+path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, want 404", path, response.Status)
		}
	}
}

func TestMetricsAreNegotiated(t *testing.T) {
	t.Parallel()
	_, url := serve(t, metrics.New(metrics.Options{}))
	response, body := get(t, url+"/metrics", "Accept", "application/openmetrics-text; version=1.0.0", "Accept-Encoding", "gzip")
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("Content-Type %q, %d bytes", kind, len(body))
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "gzip" {
		t.Errorf("Content-Encoding %q, want gzip", encoding)
	}
	if response, _ := get(t, url+"/metrics"); !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("Content-Type %q", response.Header.Get("Content-Type"))
	}
}

func TestATakenPortIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	first, _ := serve(t, m)
	second := metrics.NewServer(m, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	address := first.Addr().String()
	if err := second.Listen(t.Context(), address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("err %v, want one that names %s", err, address)
	}
	if err := second.Serve(); err == nil {
		t.Error("it serves without a listener")
	}
	if err := second.Close(); err != nil {
		t.Errorf("closing what never listened: %v", err)
	}
}

// What was opened is closed, also when it never came to serving.
func TestCloseFreesThePort(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	s := metrics.NewServer(m, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err := s.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Serve(); err != nil {
		t.Errorf("serving after Close: %v", err)
	}
	again := metrics.NewServer(m, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err := again.Listen(t.Context(), s.Addr().String()); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
