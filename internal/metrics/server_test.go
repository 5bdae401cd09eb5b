package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// serve serves, with some probes, until the test ends, and returns the server's port.
func serve(t *testing.T, address string, probes http.HandlerFunc) (port int) {
	t.Helper()
	server := metrics.NewServer(metrics.Options{Version: "v1.2.3", Role: "workers", Probes: probes, Log: slog.New(slog.DiscardHandler)})
	if err := server.Listen(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what hangs is cut off, and that is no error
		if err := errors.Join(server.Shutdown(ctx), <-ended); err != nil {
			t.Error(err)
		}
	})
	return server.Addr().(*net.TCPAddr).Port
}

// client keeps no connections, as goleak would find them.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

// Probes are answered under any name. A web page whose name points to this machine learns nothing else. Profiles are served to this
// machine only, without the command line.
func TestTheListenerServes(t *testing.T) {
	t.Parallel()
	probes := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "probe of "+r.URL.Path) }
	local, open := serve(t, "127.0.0.1:0", probes), serve(t, "0.0.0.0:0", probes)
	const foreign = "attacker.example:9464"
	for _, test := range []struct {
		port            int
		path, host, via string
		status          int
		want            string
	}{
		{local, "/metrics", "localhost:9464", "", 200, fmt.Sprintf("activityd_build_info{go_version=%q,role=\"workers\",version=\"v1.2.3\"} 1", runtime.Version())},
		{local, "/healthz", "10.1.2.3:9464", "", 200, "probe of /healthz"},
		{local, "/readyz", foreign, "", 200, "probe of /readyz"},
		{local, "/", "", "", 200, `href="/metrics"`},
		{local, "/v1/tasks", "", "", 404, ""},
		{local, "/metrics/more", "", "", 404, ""},
		{local, "/metrics", foreign, "", 421, "localhost"},
		{local, "/", foreign, "", 421, "localhost"},
		{open, "/metrics", "app1:9464", "", 200, "activityd_build_info"}, // anybody can reach it anyway
		{local, "/debug/pprof/", "", "", 200, "goroutine"},
		{local, "/debug/pprof/goroutine?debug=1", "", "", 200, "goroutine profile"},
		{local, "/debug/pprof/profile?seconds=1", "", "", 200, ""},
		{local, "/debug/pprof/trace?seconds=0.1", "", "", 200, ""},
		{local, "/debug/pprof/cmdline", "", "", 404, ""},
		{local, "/debug/pprof/heap", foreign, "", 421, ""},
		{local, "/debug/pprof/trace?seconds=0.1", foreign, "", 421, ""},
		{open, "/debug/pprof/heap", "", "", 200, ""},
		{open, "/debug/pprof/", "", "192.0.2.1", 403, ""},
		{open, "/debug/pprof/heap", "", "192.0.2.1", 403, ""},
		{open, "/debug/pprof/profile?seconds=1", "", "192.0.2.1", 403, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", test.port, test.path), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		if test.via != "" {
			request.Header.Set("X-Forwarded-For", test.via)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.want) || test.status == 421 && strings.Contains(string(body), "metrics") {
			t.Errorf("%s for %q via %q: %s, %v, want %d and %q in %.500s", test.path, test.host, test.via, response.Status, err, test.status, test.want, body)
		}
	}
}

// A scrape that hangs at the stop is cut off, and that is no error.
func TestShutdownCutsScrapesOff(t *testing.T) {
	t.Parallel()
	entered, asked := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { <-asked })
	port := serve(t, "127.0.0.1:0", func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	go func() {
		defer close(asked)
		if response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port)); err == nil {
			_ = response.Body.Close()
			t.Error("it was answered")
		}
	}()
	<-entered
}
