package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// metricOf returns the sum of a metric's values that a program shows.
func metricOf(t *testing.T, p *program, name string) (sum float64) {
	t.Helper()
	response, err := http.Get("http://" + p.metrics + "/metrics") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// For a refused read nothing is asked of MySQL and Redis: there are as many questions as other
// reads need, while many times as many are refused. What is not refused is answered truly.
func TestRefusedReadsAskNothing(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	o, err := s.overloads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.mix(t.Context(), allSets); err != nil {
		t.Fatal(err)
	}
	target, err := o.target(t.Context(), ours, "--role=api")
	if err != nil {
		t.Fatal(err)
	}
	var l step
	c, err := s.meter.counted(t.Context(), func() (err error) {
		l, err = o.step(t.Context(), target, offer{conns: 300, duration: time.Second}, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.good == 0 || l.wrong+l.failed+l.broken > 0 {
		t.Fatalf("%d good, %d wrong, %d failed, %d broken: %s", l.good, l.wrong, l.failed, l.broken, l.sample)
	}
	before := metricOf(t, target.program, "activityd_reads_refused_total")
	if before == 0 {
		t.Fatal("no read was refused before anything was asked")
	}
	let := float64(l.sent) - before
	// A read is one command of Redis, and at most three statements; the rest is what the process
	// asks by itself, for probes and the state of the queue.
	const byItself = 500
	if c.Commands > 2*let+byItself || c.Statements > 4*let+byItself {
		t.Errorf("%v commands of Redis and %v statements for %v reads that were let in, of %d", c.Commands, c.Statements, let, l.sent)
	}
}

// serveLocally serves until t ends.
func serveLocally(t *testing.T, handler http.HandlerFunc) (addr string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener.Addr().String()
}

// A schedule goes on whatever becomes of its requests, and each arrival is accounted for.
func TestTheOpenLoopAccountsForEachArrival(t *testing.T) {
	t.Parallel()
	addr := serveLocally(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "true enough")
		case "/wrong":
			_, _ = io.WriteString(w, "false")
		case "/refused":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/failed":
			w.WriteHeader(http.StatusInternalServerError)
		case "/late":
			<-r.Context().Done()
		case "/broken":
			panic(http.ErrAbortHandler)
		}
	})
	var questions []question
	for _, path := range []string{"good", "wrong", "refused", "failed", "late", "broken"} {
		questions = append(questions, question{fmt.Appendf(nil, "GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n", path), []byte("true"), nil})
	}
	l := offer{addr: addr, questions: questions, rate: 300, conns: 20, patience: 300 * time.Millisecond, duration: time.Second, seed: 1}
	o, err := l.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sum := o.good + o.refused + o.failed + o.wrong + o.late + o.unsent + o.broken; sum != o.arrivals || o.arrivals < 100 {
		t.Errorf("%d of %d arrivals: %+v", sum, o.arrivals, o)
	}
	for name, n := range map[string]int{"good": o.good, "wrong": o.wrong, "refused": o.refused, "failed": o.failed, "late": o.late, "broken": o.broken} {
		if n == 0 {
			t.Errorf("none is %s", name)
		}
	}
	if o.good != o.goods.n || o.refused != o.refusals.n || o.goods.quantile(0.5) <= 0 {
		t.Errorf("times of %d and %d", o.goods.n, o.refusals.n)
	}
}

// Those that come together, and are refused, come again until all are answered.
func TestThoseThatWakeUpTogetherAreAllAnswered(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	addr := serveLocally(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 0 {
			_, _ = io.WriteString(w, "true")
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	q := question{[]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), []byte("true"), nil}
	o, err := offer{addr: addr, questions: []question{q}, together: 4, conns: 4, patience: time.Minute, duration: time.Minute}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.good != 4 || o.retries != o.refused || o.refused == 0 || o.arrivals != 4 {
		t.Errorf("%d good, %d refused, %d asked again, %d came", o.good, o.refused, o.retries, o.arrivals)
	}
}
