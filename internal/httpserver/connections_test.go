package httpserver_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/testing/logtest"
)

// watched is a gauge or a counter that signals each change.
type watched struct {
	prometheus.Gauge

	rises, falls chan struct{}
}

func newWatched() watched {
	return watched{prometheus.NewGauge(prometheus.GaugeOpts{Name: "watched"}), make(chan struct{}, 1000), make(chan struct{}, 1000)}
}

func (w watched) Inc() { w.rises <- struct{}{} }
func (w watched) Dec() { w.falls <- struct{}{} }

func linesOf(log *logtest.Log) []string { return slices.Collect(strings.Lines(log.String())) }

// dial opens a connection and sends text.
func dial(t *testing.T, s *httpserver.Server, text string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

const getHello = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// A connection too many is closed at once, earlier connections go on, and the end of
// a connection makes room. The log has a line at once and, at the end, a line for the rest.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	open, refused, log := newWatched(), newWatched(), &logtest.Log{}
	s, served := serve(t, &http.Server{Handler: hello}, httpserver.Options{MaxConnections: 2, Log: log.Logger(), Open: open, Refused: refused})
	held := []net.Conn{dial(t, s, getHello), dial(t, s, getHello)}
	<-open.rises
	<-open.rises
	const many = 50
	for range many {
		if text, _ := io.ReadAll(dial(t, s, "")); len(text) > 0 { // the end, or a reset
			t.Errorf("one too many was answered %q", text)
		}
		<-refused.rises
	}
	for _, c := range held {
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("one that was there before: %v, %v", response, err)
		}
		_ = response.Body.Close()
	}
	_ = held[0].Close()
	<-open.falls
	wantHello(t, "http", s)
	if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
	<-open.falls
	<-open.falls
	if len(open.rises) != 1 || len(open.falls) != 0 || len(refused.rises) != 0 {
		t.Errorf("%d were opened, %d closed, %d refused besides", len(open.rises), len(open.falls), len(refused.rises))
	}
	lines := linesOf(log)
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "over_limit=1 ") ||
		!strings.Contains(lines[1], fmt.Sprintf("over_limit=%d ", many-1)) {
		t.Errorf("logged %q", lines)
	}
}

// A client that sends nothing, with TLS or without, has its place for no longer than
// a header may take. That is long enough for a handshake on a busy machine.
func TestASilentClientLosesItsPlace(t *testing.T) {
	t.Parallel()
	for scheme, config := range map[string]*tls.Config{"http": nil, "https": borrowedTLS()} {
		open := newWatched()
		s, _ := serve(t, &http.Server{Handler: hello, ReadHeaderTimeout: 3 * time.Second, TLSConfig: config},
			httpserver.Options{MaxConnections: 1, Log: slog.New(slog.DiscardHandler), Open: open})
		dial(t, s, "")
		<-open.falls
		wantHello(t, scheme, s)
	}
}

// The bound leaves room for the rest of the process.
func TestTheBoundByDefault(t *testing.T) {
	t.Parallel()
	if n := httpserver.DefaultConnections(); n < 1 || n > 10_000 {
		t.Errorf("%d connections", n)
	}
	for files, want := range map[uint64]int{0: 1, 1: 1, 2: 1, 256: 128, 1024: 512, 19_999: 9_999, 20_000: 10_000, 65_536: 10_000, 1<<64 - 1: 10_000} {
		if got := httpserver.ConnectionsFor(files); got != want {
			t.Errorf("of %d files: %d connections, want %d", files, got, want)
		}
	}
}

// However often strangers send nonsense, the log has a line at once and then
// a line a minute, with their number and the last error.
func TestProtocolErrorsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, server := &logtest.Log{}, &http.Server{}
		s := httpserver.New(server, httpserver.Options{Log: log.Logger()})
		const many = 1000
		for i := range many {
			server.ErrorLog.Printf("http: TLS handshake error from 192.0.2.1:%d: %s", i, strings.Repeat("x", 10_000))
			s.Refused("no_token")
		}
		if lines := linesOf(log); len(lines) != 1 || !strings.Contains(lines[0], " protocol=1 ") {
			t.Errorf("at once: %.500q", lines)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		lines := linesOf(log)
		if len(lines) != 2 || len(lines[1]) > 500 || !strings.Contains(lines[1], "level=INFO") ||
			!strings.Contains(lines[1], fmt.Sprintf(`msg="requests refused" no_token=%d protocol=%d last="http: TLS handshake error from 192.0.2.1:%d: xxx`, many, many-1, many-1)) {
			t.Errorf("after a minute: %.500q", lines)
		}
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if lines := linesOf(log); len(lines) != 2 {
			t.Errorf("when it is quiet: %.500q", lines[2:])
		}
		s.Refused("unmatched")
		s.Refused("unmatched")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if lines := linesOf(log); len(lines) != 4 || !strings.Contains(lines[2], "unmatched=1\n") || !strings.Contains(lines[3], "unmatched=1\n") {
			t.Errorf("again, and at the end: %.500q", lines[2:])
		}
		s.Refused("late") // no timer is left that would log it
		if lines := linesOf(log); len(lines) != 5 || !strings.Contains(lines[4], "late=1\n") {
			t.Errorf("after the end: %.500q", lines[4:])
		}
	})
}

// An error of our own is logged as an error.
func TestFaultsOfTheServerAreLoud(t *testing.T) {
	t.Parallel()
	log, server := &logtest.Log{}, &http.Server{}
	httpserver.New(server, httpserver.Options{Log: log.Logger()})
	server.ErrorLog.Print("http: panic serving 192.0.2.1:1: oh")
	server.ErrorLog.Print("http2: panic serving 192.0.2.1:1: oh")
	for range 100 {
		server.ErrorLog.Print("http: Accept error: accept tcp: too many open files; retrying in 1s")
	}
	lines := linesOf(log)
	if len(lines) != 3 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[1], "level=ERROR") ||
		!strings.Contains(lines[2], "level=WARN") || !strings.Contains(lines[2], "accept_error=1") || !strings.Contains(lines[2], "too many open files") {
		t.Errorf("logged %q", lines)
	}
}
