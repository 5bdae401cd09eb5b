package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// childServer makes the test's program a push service that a test can stop.
const childServer = "CONN_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(childServer) != "" {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.EnableHTTP2 = true
		s.StartTLS()
		fmt.Println(s.URL)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	servertest.Main(m)
}

const patience = time.Minute

// serve starts a push service of HTTP/2, or of HTTP/1.1.
func serve(t *testing.T, isHTTP2 bool, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(f)
	s.EnableHTTP2 = isHTTP2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// newPool returns a pool that trusts the servers of httptest.
func newPool(t *testing.T, change ...func(*Options)) *Pool {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	o := Options{RootCAs: x509.NewCertPool(), Silence: patience}
	o.RootCAs.AddCert(s.Certificate())
	for _, f := range change {
		f(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// failure is a [Failure] as an error.
type failure struct{ *Failure }

func (f failure) Error() string { return fmt.Sprintf("fate %d: %v", f.Fate, f.Err) }

func post(ctx context.Context, t *testing.T, p *Pool, to, text string, before ...time.Time) (Answer, error) {
	t.Helper()
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	a, failed := p.Post(ctx, at, http.Header{"X-Ours": {"yes"}}, []byte(text), append(before, time.Time{})[0])
	if failed != nil {
		return a, failure{failed}
	}
	return a, nil
}

// resultOf returns the result of a message, without the error that is logged.
func resultOf(err error) push.Result {
	failed, _ := errors.AsType[failure](err)
	r := Unanswered(failed.Failure)
	r.Err = nil
	return r
}

// wantFate fails the test unless there was no answer, and this is known.
func wantFate(t *testing.T, err error, want Fate, r push.Result) {
	t.Helper()
	failed, ok := errors.AsType[failure](err)
	if !ok || failed.Fate != want || resultOf(err) != r || (Unanswered(failed.Failure).Err != nil) != (want == Undialled) {
		t.Errorf("%v; want fate %v, %+v", err, want, r)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := patient(t); !isSo(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
}

// The answer of a peer is returned by either version of HTTP, also a redirect.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{true, false} {
		s := serve(t, isHTTP2, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			w.Header().Set("Location", "/elsewhere")
			if r.Method != http.MethodPost || r.Header.Get("X-Ours") != "yes" || r.URL.Path != "/to" || r.ContentLength != int64(len(text)) {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusFound)
			_, _ = io.WriteString(w, strings.Repeat(string(text), 4<<10))
		})
		p := newPool(t)
		for range 3 {
			a, err := post(patient(t), t, p, s.URL+"/to", "hello!")
			if err != nil || a.Err != nil || a.Status != http.StatusFound || a.Header.Get("Location") != "/elsewhere" || len(a.Body) != maxAnswer || !strings.HasPrefix(string(a.Body), "hello!hello!") {
				t.Errorf("HTTP/2 %v: %d %q, %d bytes: %v %v", isHTTP2, a.Status, a.Header, len(a.Body), err, a.Err)
			}
		}
	}
}

// To a peer without HTTP/2, many messages go over some connections.
func TestHTTP1(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	s := serve(t, false, func(http.ResponseWriter, *http.Request) {})
	p := newPool(t, func(o *Options) {
		o.Count = func(delta int) { conns.Add(int64(max(delta, 0))) }
	})
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if a, err := post(patient(t), t, p, s.URL, "text"); err != nil || a.Status != http.StatusOK {
				t.Error(a, err)
			}
		})
	}
	all.Wait()
	if n := conns.Load(); n < 1 || n > 2*links*maxPerLink { // a connection that closed too early is opened again
		t.Errorf("%d connections", n)
	}
}

// A connection carries a single request until its answer, and then all that wait.
func TestFirstRequestIsAlone(t *testing.T) {
	t.Parallel()
	held, came := make(chan struct{}), make(chan struct{}, 10)
	s := serve(t, true, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-held })
	p := newPool(t)
	p.alone = patience
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if a, err := post(patient(t), t, p, s.URL, "text"); err != nil || a.Status != http.StatusOK {
				t.Error(a, err)
			}
		})
	}
	<-came
	eventually(t, "ten are in flight", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.inFlight == 10
	})
	if n := len(came); n != 0 {
		t.Errorf("%d others were sent with the first", n)
	}
	close(held)
	all.Wait()
	if n := len(came); n != 9 {
		t.Errorf("%d others were sent", n)
	}
}

// While the first request is under way, the end of its connection lets no other request be a first: the library sends it again.
func TestFirstRequestOverAnotherConnection(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	l := p.take("push.example:443")
	defer p.put(l)
	first, _ := p.begin(t.Context(), l)
	hangUp := func() {
		c, other := net.Pipe()
		defer func() { _ = other.Close() }()
		over := &counted{Conn: c, pool: p, link: l}
		p.mu.Lock()
		p.open[over] = struct{}{}
		l.conns++
		l.to.uses++
		p.mu.Unlock()
		_ = over.Close()
	}
	hangUp()
	if l.first != first {
		t.Error("another request would be sent beside the first")
	}
	p.begun(l, first, Answer{Status: http.StatusOK}, nil)
	hangUp()
	if l.first != nil {
		t.Error("the next request over a new connection is no first")
	}
}

// The last use of a host that was forgotten leaves its successor alone.
func TestForgottenHost(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	before := p.take("push.example:443")
	p.put(before)
	after := p.take("push.example:443")
	defer p.put(after)
	p.mu.Lock()
	before.to.uses++ // the transport dials late
	p.unused(before)
	isKnown := p.hosts["push.example:443"] == after.to
	p.mu.Unlock()
	if !isKnown {
		t.Error("the host is forgotten while a request is in flight")
	}
}

// A first request without an answer holds up the next for a second.
func TestFirstRequestHangs(t *testing.T) {
	t.Parallel()
	var came atomic.Int64
	s := serve(t, true, func(_ http.ResponseWriter, r *http.Request) {
		if came.Add(1) == 1 {
			<-r.Context().Done()
		}
	})
	p := newPool(t)
	p.alone = 10 * time.Millisecond
	over, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, err := post(over, t, p, s.URL, "text"); first <- err }()
	eventually(t, "the first one hangs", func() bool { return came.Load() == 1 })
	if a, err := post(patient(t), t, p, s.URL, "text"); err != nil || a.Status != http.StatusOK {
		t.Error(a, err)
	}
	cancel()
	wantFate(t, <-first, Unknown, push.Result{Outcome: push.Ambiguous, Reason: ReasonTimeout})
}

// A peer that refuses the first request, as by 503 with Retry-After, gets no request that waited for it.
func TestFirstRequestIsRefused(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{true, false} {
		held := make(chan struct{})
		var came, unsent atomic.Int64
		s := serve(t, isHTTP2, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/later" {
				return
			}
			came.Add(1)
			<-held
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		p := newPool(t)
		p.alone = patience
		var all sync.WaitGroup
		for range fewOnLink {
			all.Go(func() {
				if _, err := post(patient(t), t, p, s.URL, "text"); err != nil && resultOf(err) == (push.Result{Outcome: push.Wait, Reason: push.ReasonHeld}) {
					unsent.Add(1)
				}
			})
		}
		eventually(t, "all are in flight", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.inFlight == fewOnLink && came.Load() == 1
		})
		close(held)
		all.Wait()
		if came.Load() != 1 || unsent.Load() != fewOnLink-1 {
			t.Errorf("HTTP/2 %v: %d were sent, %d were not", isHTTP2, came.Load(), unsent.Load())
		}
		if _, err := post(patient(t), t, p, s.URL+"/later", "text"); err != nil { // whether it waits is for the breaker to say
			t.Error(err)
		}
	}
}

// A request whose answer is lost is unknown, and not sent again by itself.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{true, false} {
		var came atomic.Int64
		var cut atomic.Bool
		hang := make(chan struct{}, 1)
		s := serve(t, isHTTP2, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			came.Add(1)
			switch r.URL.Path {
			case "/hang":
				hang <- struct{}{}
				<-r.Context().Done()
			case "/cut":
				cut.Store(true)
				panic(http.ErrAbortHandler)
			}
		})
		p := newPool(t)
		if _, err := post(patient(t), t, p, s.URL, "text"); err != nil {
			t.Fatal(err)
		}
		_, err := post(patient(t), t, p, s.URL+"/cut", "text")
		wantFate(t, err, Unknown, push.Result{Outcome: push.Ambiguous, Reason: ReasonLost})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-hang; cancel() }()
		_, err = post(ctx, t, p, s.URL+"/hang", "text")
		wantFate(t, err, Unknown, push.Result{Outcome: push.Ambiguous, Reason: ReasonTimeout})
		if n := came.Load(); n != 3 {
			t.Errorf("HTTP/2 %v: three requests came %d times", isHTTP2, n)
		}
		_, err = post(ctx, t, p, s.URL, "text")
		wantFate(t, err, Unsent, push.Result{Outcome: push.Wait, Reason: ReasonTimeout})
	}
}

// It is known of a request that it could not be sent.
func TestNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = away.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	p := newPool(t)
	for to, reason := range map[string]string{
		"https://" + away.Addr().String():                   ReasonDial,
		"https://no-such-host.invalid":                      ReasonDNS,
		strings.Replace(s.URL, "127.0.0.1", "localhost", 1): ReasonTLS,
	} {
		_, err := post(patient(t), t, p, to, "text")
		wantFate(t, err, Undialled, push.Result{Outcome: push.Wait, Reason: reason})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = post(ctx, t, p, "https://"+mute.Addr().String(), "text")
	wantFate(t, err, Unsent, push.Result{Outcome: push.Wait, Reason: ReasonTimeout})
	p.Close()
	_, err = post(patient(t), t, p, s.URL, "text")
	wantFate(t, err, Undialled, push.Result{Outcome: push.Wait, Reason: ReasonDial})
}

// The address of a proxy is in no error: it may have a password.
func TestNoPasswordOfAProxy(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.hosts["push.example:443"] = p.newHost("push.example:443")
	for _, l := range p.hosts["push.example:443"].links {
		l.Proxy = hushed(func(*http.Request) (*url.URL, error) { return nil, errors.New("invalid: http://me:secret@proxy") })
	}
	_, err := post(patient(t), t, p, "https://push.example", "text")
	wantFate(t, err, Undialled, push.Result{Outcome: push.Wait, Reason: ReasonDial})
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// A request that gets its connection too late does not leave, and is known not to have.
func TestTooLate(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{true, false} {
		var came atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if text, err := io.ReadAll(r.Body); err == nil && len(text) > 0 {
				came.Add(1)
			}
		}))
		s.EnableHTTP2 = isHTTP2
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			<-time.After(200 * time.Millisecond)
			return nil, nil //nolint:nilnil // as documented: the configuration stays
		}}
		s.StartTLS()
		t.Cleanup(s.Close)
		p := newPool(t)
		_, err := post(patient(t), t, p, s.URL, "text", time.Now().Add(100*time.Millisecond))
		wantFate(t, err, Unsent, push.Result{Outcome: push.Wait, Reason: ReasonNotSent})
		if a, err := post(patient(t), t, p, s.URL, "text", time.Now().Add(patience)); err != nil || a.Status != http.StatusOK {
			t.Errorf("HTTP/2 %v: in time: %v, %v", isHTTP2, a.Status, err)
		}
		if n := came.Load(); n != 1 {
			t.Errorf("HTTP/2 %v: %d requests came, want 1", isHTTP2, n)
		}
	}
}

// A thousand requests are in flight over few connections, and a host that answers nothing holds up itself alone.
func TestConnectionsAreFew(t *testing.T) {
	t.Parallel()
	const many = 1000
	held := make(chan struct{})
	var came, conns atomic.Int64
	var seen sync.Map // connections
	s := serve(t, true, func(_ http.ResponseWriter, r *http.Request) {
		if _, isKnown := seen.LoadOrStore(r.RemoteAddr, true); isKnown {
			came.Add(1)
			<-held
		}
	})
	p := newPool(t, func(o *Options) { o.Count = func(delta int) { conns.Add(int64(delta)) } })
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if a, err := post(patient(t), t, p, s.URL, "text"); err != nil || a.Status != http.StatusOK {
				t.Error(a, err)
			}
		})
	}
	eventually(t, "all came", func() bool { return came.Load() >= many-4*links }) // but the first
	other := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	if _, err := post(patient(t), t, p, other.URL, "text"); err != nil {
		t.Errorf("another host is held up: %v", err)
	}
	if n := conns.Load(); n > 2*links+1 {
		t.Errorf("%d connections", n)
	}
	close(held)
	all.Wait()
}

// A peer that closes each connection at once, by GOAWAY, is not dialled without end.
func TestPeerThatGoesAwayAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int64
	var served sync.WaitGroup
	defer served.Wait()
	defer func() { _ = l.Close() }()
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			served.Go(func() {
				defer func() { _ = c.Close() }()
				f := http2.NewFramer(c, nil)
				if f.WriteSettings() == nil && f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil {
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
	})
	p := newPool(t)
	_, err = post(patient(t), t, p, "https://"+l.Addr().String(), "text")
	wantFate(t, err, Unsent, push.Result{Outcome: push.Wait, Reason: ReasonNotSent})
	if n := came.Load(); n < 2 || n > 2*maxTries {
		t.Errorf("it was dialled %d times", n)
	}
	p.Close()
}

// Requests in flight over a pool that is closed are finished, also a request that has no connection yet; then its connections end.
func TestClose(t *testing.T) {
	t.Parallel()
	held, came := make(chan struct{}), make(chan struct{}, 1)
	s := serve(t, true, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			came <- struct{}{}
			<-held
		}
	})
	var conns atomic.Int64
	p := newPool(t, func(o *Options) { o.Count = func(delta int) { conns.Add(int64(delta)) } })
	done := make(chan error)
	go func() { _, err := post(patient(t), t, p, s.URL+"/held", "text"); done <- err }()
	<-came
	p.Close()
	c, err := p.dial(t.Context(), "tcp", s.Listener.Addr().String(), p.hosts[s.Listener.Addr().String()].links[0])
	if err != nil {
		t.Fatalf("a request in flight gets no connection: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }() // as a transport does
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections while requests are in flight", n)
	}
	close(held)
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "the connections end", func() bool { return conns.Load() == 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hosts) != 0 || len(p.open) != 0 {
		t.Errorf("%d hosts and %d connections are remembered", len(p.hosts), len(p.open))
	}
}

// A peer whose process is stopped is noticed by a PING that it does not answer.
func TestStoppedPeer(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childServer+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Signal(syscall.SIGCONT); _ = in.Close(); _ = child.Wait() }()
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	at = strings.TrimSpace(at)
	p := newPool(t, func(o *Options) { o.Silence = time.Second })
	if _, err := post(patient(t), t, p, at, "text"); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v: it is not stopped: %v", status, err)
	}
	_, err = post(patient(t), t, p, at, "text")
	wantFate(t, err, Unknown, push.Result{Outcome: push.Ambiguous, Reason: ReasonLost})
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if a, err := post(patient(t), t, p, at, "text"); err != nil || a.Status != http.StatusOK {
		t.Errorf("when it goes on: %+v %v", a, err)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999999999999": 0,
		"Sat, 28 Nov 2026 12:01:00 GMT": time.Minute, "Sat, 28 Nov 2026 11:59:00 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
