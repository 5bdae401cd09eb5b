package httpserver_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/httpserver"
)

// listen returns a server that listens and is closed with the test.
func listen(t testing.TB, address string, handler http.Handler) *httpserver.Server {
	t.Helper()
	s := httpserver.New(&http.Server{Handler: handler}, httpserver.Options{})
	if err := s.Listen(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The names of this machine are known, with any port, and no further names.
func TestKnows(t *testing.T) {
	t.Parallel()
	s := httpserver.New(&http.Server{}, httpserver.Options{})
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "127.0.0.1": true, "127.0.0.1:8080": true, "127.9.9.9:1": true,
		"[::1]": true, "[::1]:8080": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":8080": false, "attacker.example": false, "attacker.example:8080": false, "localhost.attacker.example:8080": false,
		"127.0.0.1.attacker.example": false, "attacker.example:127": false, "localhost:x": false, "localhost:8080@attacker.example": false,
		"192.0.2.1:8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "[2001:db8::1]": false, "2130706433": false, "127.1": false, "localhosts": false,
	} {
		if got := s.Knows(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}

// The name that an operator chose to listen on is known: it is in the operator's
// own hands where it points.
func TestTheNameThatIsListenedOnIsKnown(t *testing.T) {
	t.Parallel()
	s := listen(t, "localhost:0", nil)
	if *s.Name() != "localhost" {
		t.Errorf("the name is %q", *s.Name())
	}
	*s.Name() = "app.example" // had it been called so
	for host, want := range map[string]bool{"app.example:1": true, "App.Example": true, "b.app.example": false, "example": false, "localhost": true} {
		if s.Knows(host) != want {
			t.Errorf("%s: %t", host, !want)
		}
	}
	open := listen(t, "0.0.0.0:0", nil) // an address counts as such
	for host, want := range map[string]bool{"0.0.0.0:1": false, "": false, ":1": false, "localhost": true} {
		if open.Knows(host) != want {
			t.Errorf("%q: %t", host, !want)
		}
	}
}

// Whatever is known, a browser would have connected to this machine for it.
func FuzzKnows(f *testing.F) {
	for _, seed := range []string{"localhost", "127.0.0.1:80", "[::1]:80", "localhost:80:80", "[localhost]", "::1", "a.localhost", "127.0.0.1%2e", "localhost\x00", "[::1%25a]:1"} {
		f.Add(seed)
	}
	s := httpserver.New(&http.Server{}, httpserver.Options{})
	f.Fuzz(func(t *testing.T, host string) {
		if !s.Knows(host) {
			return
		}
		u, err := url.Parse("http://" + host + "/")
		if err != nil {
			return // no browser asks for that
		}
		name, _, _ := strings.Cut(u.Hostname(), "%")
		if ip := net.ParseIP(name); !strings.EqualFold(name, "localhost") && (ip == nil || !ip.IsLoopback()) {
			t.Errorf("%q is known: a browser takes it for %q", host, name)
		}
	})
}

// ask sends a request for a host to a handler that answers with 200.
func ask(t *testing.T, s *httpserver.Server, host string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Host = host
	w := httptest.NewRecorder()
	s.LocalOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	return w
}

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	local := listen(t, "127.0.0.1:0", nil)
	if w := ask(t, local, "localhost:1"); w.Code != http.StatusOK {
		t.Errorf("localhost: %d %s", w.Code, w.Body)
	}
	w := ask(t, local, "attacker.example:1")
	if w.Code != http.StatusMisdirectedRequest || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	for _, told := range []string{`"attacker.example:1"`, "localhost, a loopback address", "Host: localhost"} {
		if !strings.Contains(w.Body.String(), told) {
			t.Errorf("%q does not say %s", w.Body, told)
		}
	}
	if w := ask(t, local, strings.Repeat("a", 10_000)); w.Body.Len() > 1000 {
		t.Errorf("the answer to a long name has %d bytes", w.Body.Len())
	}
	if w := ask(t, listen(t, "0.0.0.0:0", nil), "app1:1"); w.Code != http.StatusOK {
		t.Errorf("others can reach it anyway: %d %s", w.Code, w.Body)
	}
}
