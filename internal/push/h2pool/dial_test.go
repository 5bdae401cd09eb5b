package h2pool

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// A proxy is asked for a tunnel, by name and password, and may refuse it.
func TestProxies(t *testing.T) {
	t.Parallel()
	target := servePeer(t, func(l *link) {
		l.begin()
		for id, _, ok := l.request(); ok; id, _, ok = l.request() {
			l.answer(id, 200)
		}
	})
	tunnel := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != "Basic YW5uOnMzY3JldA==" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	})
	for _, through := range []*httptest.Server{httptest.NewServer(tunnel), httptest.NewTLSServer(tunnel)} {
		t.Cleanup(through.Close)
		for user, want := range map[*url.Userinfo]string{url.UserPassword("ann", "s3cret"): "", nil: "407"} {
			at, err := url.Parse(through.URL)
			if err != nil {
				t.Fatal(err)
			}
			at.User = user
			_, err = send(t, target.pool(t, func(o *Options) { o.Proxy = http.ProxyURL(at) }), "text")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("%s, want %q: %v", at.Scheme, want, err)
			}
		}
	}
	_, err := send(t, target.pool(t, func(o *Options) { o.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5", Host: "x"}) }), "text")
	if err == nil || FateOf(err) != NotWritten {
		t.Errorf("by SOCKS: %v", err)
	}
}
