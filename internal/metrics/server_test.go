package metrics_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// newServer returns a server with some probes.
func newServer(probes http.HandlerFunc) *metrics.Server {
	return metrics.NewServer(options(probes))
}

func options(probes http.HandlerFunc) metrics.Options {
	return metrics.Options{Version: "v1.2.3", Role: "workers", Probes: probes, Log: slog.New(slog.DiscardHandler)}
}

// serve serves until the test ends and returns the server and its URL.
func serve(t *testing.T, address string) (server *metrics.Server, url string) {
	t.Helper()
	return serveWith(t, address, options(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "probe of "+r.URL.Path) }))
}

func serveWith(t *testing.T, address string, o metrics.Options) (server *metrics.Server, url string) {
	t.Helper()
	server = metrics.NewServer(o)
	if server.Addr() != nil {
		t.Error("an address before Listen")
	}
	if err := server.Listen(t.Context(), address); err != nil {
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

// client keeps no connections, as goleak would find them.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

func get(t *testing.T, url string) (response *http.Response, body string) {
	t.Helper()
	return getAs(t, url, "")
}

// getAs asks for another host than the URL's.
func getAs(t *testing.T, url, host string) (response *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	if response, err = client.Do(request); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(all)
}

func TestTheListenerServes(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "127.0.0.1:0")
	for path, want := range map[string]string{
		"/metrics": fmt.Sprintf("activityd_build_info{go_version=%q,role=\"workers\",version=\"v1.2.3\"} 1", runtime.Version()), "/healthz": "probe of /healthz", "/readyz": "probe of /readyz", "/": `href="/metrics"`,
	} {
		if response, body := get(t, url+path); response.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q in %s", path, response.Status, want, body)
		}
	}
	for _, path := range []string{"/v1/tasks", "/metrics/more"} {
		if response, _ := get(t, url+path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, want 404", path, response.Status)
		}
	}
}

// Profiles are served, but not the command line, nor to web pages
// whose name points to this machine.
func TestProfiles(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "127.0.0.1:0")
	for path, want := range map[string]int{
		"/debug/pprof/":                      http.StatusOK,
		"/debug/pprof/goroutine?debug=1":     http.StatusOK,
		"/debug/pprof/profile?seconds=1":     http.StatusOK,
		"/debug/pprof/trace?seconds=0.1":     http.StatusOK,
		"/debug/pprof/cmdline":               http.StatusNotFound,
		"/debug/pprof/profile/and/not/below": http.StatusNotFound,
	} {
		if response, body := get(t, url+path); response.StatusCode != want || body == "" {
			t.Errorf("%s: %s with %d bytes, want %d", path, response.Status, len(body), want)
		}
		if response, _ := getAs(t, url+path, "attacker.example:9464"); want == http.StatusOK && response.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s for another host: %s, want 421", path, response.Status)
		}
	}
}

// A listener that remote machines can reach shows them no profiles.
func TestProfilesAreForThisMachine(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "0.0.0.0:0")
	if response, _ := get(t, url+"/debug/pprof/heap"); response.StatusCode != http.StatusOK {
		t.Errorf("on this machine: %s", response.Status)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.1"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Forwarded-For", "192.0.2.1")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s from a remote machine: %s, want 403", path, response.Status)
		}
	}
}

// A web page whose name points to this machine learns nothing. Probes are answered
// under any name.
func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	_, local := serve(t, "127.0.0.1:0")
	server, _ := serve(t, "0.0.0.0:0")
	open := fmt.Sprintf("http://127.0.0.1:%d", server.Addr().(*net.TCPAddr).Port)
	for _, test := range []struct {
		url, host string
		want      int
	}{
		{local + "/metrics", "localhost:9464", 200},
		{local + "/metrics", "attacker.example:9464", 421},
		{local + "/", "attacker.example:9464", 421},
		{local + "/healthz", "10.1.2.3:9464", 200},
		{local + "/readyz", "attacker.example", 200},
		{open + "/metrics", "app1:9464", 200}, // anybody can reach it anyway
	} {
		response, body := getAs(t, test.url, test.host)
		if response.StatusCode != test.want || test.want == 421 && strings.Contains(body, "metrics") {
			t.Errorf("%s for %q: %d %s, want %d", test.url, test.host, response.StatusCode, body, test.want)
		}
	}
}

// A scrape that hangs at the stop is cut off, and that is no error.
func TestShutdownCutsScrapesOff(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s := newServer(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	if err := s.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served, asked := make(chan error, 1), make(chan struct{})
	go func() { served <- s.Serve() }()
	go func() {
		defer close(asked)
		if response, err := client.Get("http://" + s.Addr().String() + "/healthz"); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	<-asked
}
