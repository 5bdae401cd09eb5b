package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
)

// A run fails by itself when an answer is wrong, a follower is missed or a task is lost.
func TestSuiteMeasuresEveryPart(t *testing.T) {
	t.Parallel()
	o := tiny()
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	tables, byBench := make(map[string]bool), make(map[string][]figure)
	names := make(map[string]bool)
	for _, f := range r.Figures {
		tables[f.Part] = true
		byBench[f.Bench] = append(byBench[f.Bench], f)
		if key := f.Part + "\x00" + f.Name + "\x00" + f.Against; names[key] {
			t.Errorf("two figures are called %q", key)
		} else {
			names[key] = true
		}
		if f.Value == nil && f.Ratio == nil {
			t.Errorf("%s, %s: nothing was measured", f.Part, f.Name)
		}
		if f.Value != nil && f.Value.Median <= 0 && (!f.Exact || f.Verdict != reached) && !strings.Contains(f.Name, ", less ") && f.Unit != "%" && f.Unit != "µs" && f.Name != purging { // some counts are to be 0, processor times less than a tick, and what few tasks leave to purge
			t.Errorf("%s, %s: %v", f.Part, f.Name, *f.Value)
		}
		if (f.Aim == nil) != (f.Verdict == "") {
			t.Errorf("%s, %s: aim %s, verdict %q", f.Part, f.Name, f.Aim, f.Verdict)
		}
	}
	if len(tables) != 61 || len(byBench) != len(o.parts) || r.Machine.MySQL == "" || r.Machine.Redis == "" {
		t.Errorf("%d tables of %d parts, want 61 of %d: %v; machine %+v", len(tables), len(byBench), len(o.parts), tables, r.Machine)
	}
	checkThroughput(t, byBench["throughput"], o)
	if n := len(byBench["wake"]); n != 4*len(quantiles) {
		t.Errorf("%d figures of wake-ups, want %d for each of 4", n, len(quantiles))
	}
	checkCost(t, slices.Concat(byBench["cost"], byBench["snapshot"]))
	checkLocks(t, byBench["once"], o)
	checkPush(t, byBench["deliveries"], o)
	checkBacklog(t, byBench["backlog"], r.Plans, o)
	checkResults(t, r)
}

// checkLocks checks that every lock acquired and ended all its names, and that the store on
// Redis was compared with each of the others.
func checkLocks(t *testing.T, list []figure, o options) {
	t.Helper()
	pairs := make(map[int]int)
	var against []string
	for _, f := range list {
		if len(f.Samples) > 0 {
			pairs[f.Samples[0].Ops]++
		}
		if f.Name == byStore && f.Aim != nil {
			against = append(against, f.Against)
		}
	}
	if n := len(o.holders); pairs[o.pairs] != 6*n || pairs[o.pairs/10] != 4*n {
		t.Errorf("%v, want %d times %d pairs, and %d times a tenth of them", pairs, 6*n, o.pairs, 4*n)
	}
	slices.Sort(against)
	if want := []string{rawRedis, byRedislock, byRedsync}; !slices.Equal(slices.Compact(against), want) {
		t.Errorf("compared with %q, want %q", against, want)
	}
}

func checkResults(t *testing.T, r *results) {
	t.Helper()
	text := r.text()
	for _, f := range r.Figures {
		if !strings.Contains(text, f.Part) || !strings.Contains(text, f.Name) {
			t.Errorf("%s, %s is not in the text", f.Part, f.Name)
		}
	}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var again results
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatal(err)
	}
	if again.text() != text {
		t.Error("the JSON tells something else than the text")
	}
}

func TestSiteThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, site := range []siteSize{
		{Members: 100, Contacts: []int{200}, Followers: []int{1}},
		{Members: 100, Contacts: []int{10}, Followers: []int{1}, Refills: 101},
	} {
		if site.check() == nil {
			t.Errorf("%+v: no error", site)
		}
	}
}

func TestAimsJudge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		aim   *aim
		of    *spread
		exact bool
		want  string
	}{
		{atMost(1.1), &spread{1.1, 1, 1.2}, false, reached},
		{atMost(1.1), &spread{1.11, 1, 1.2}, false, missed},
		{atLeast(10), &spread{10, 9, 11}, false, reached},
		{atLeast(10), &spread{9.9, 9, 11}, false, missed},
		{atLeast(10), &spread{12, 6, 13}, false, unclear},
		{atLeast(10), &spread{30, 20, 50}, false, reached}, // however noisy, all are above it
		{atLeast(10), &spread{3, 2, 5}, false, missed},
		{atMost(250), &spread{100, 10, 240}, true, reached},
		{atMost(250), &spread{100, 10, 260}, true, reached}, // counts are never noisy
	} {
		if got := test.aim.judge(test.of, test.exact); got != test.want {
			t.Errorf("%s of %v: %q, want %q", test.aim, test.of, got, test.want)
		}
	}
}

// Three requests are three round trips, in any number of pieces.
func TestWireCountsTrips(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "sock")
	echo, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		conn, err := echo.Accept()
		if err == nil {
			_, err = io.Copy(conn, conn)
			_ = conn.Close()
		}
		served <- err
	}()
	w, err := newWire(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	const question = "how much is it?"
	for range 3 {
		if _, err := conn.Write([]byte(question)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len(question))); err != nil {
			t.Fatal(err)
		}
	}
	if trips, bytes := w.trips.Load(), w.bytes.Load(); trips != 3 || bytes != 6*int64(len(question)) {
		t.Errorf("%d trips, %d bytes; want 3, %d", trips, bytes, 6*len(question))
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := echo.Close(); err != nil {
		t.Error(err)
	}
	_ = conn.Close() // the wire cut it
}

func TestSetsThatAreWritten(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	const from, to = firstMember, firstMember + 700
	if err := writeSets(t.Context(), s.client, from, to); err != nil {
		t.Fatal(err)
	}
	for _, id := range []member.ID{from, from + 500, to} {
		entries, _, err := s.index.Candidates(t.Context(), id)
		if err != nil || len(entries) != stars {
			t.Errorf("the set of %s: %v, %v; want %d members", id, entries, err, stars)
		}
	}
}
