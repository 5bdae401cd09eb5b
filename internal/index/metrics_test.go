package index_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// counted runs a test against miniredis and a real Redis. It is not parallel, so that the test is
// alone with the metrics. rises returns by how much some metrics rose since the beginning.
func counted(t *testing.T, test func(t *testing.T, b bench, rises func(names ...string) metricstest.Samples)) {
	t.Helper()
	for name, server := range map[string]*redis.Options{
		"miniredis": {Addr: miniredistest.Run(t).Addr()},
		"redis":     {Addr: servertest.Redis(t).Addr(), Network: "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			before := metricstest.Gather(t)
			test(t, newBench(t, server, index.Options{}), func(names ...string) metricstest.Samples {
				return metricstest.Gather(t).Since(before).Named(names...)
			})
		})
	}
}

func TestWhatAddsDidIsCounted(t *testing.T) {
	counted(t, func(t *testing.T, b bench, rises func(names ...string) metricstest.Samples) {
		b.refill(t, ladder(11))
		to := func(user member.ID, contact member.ID, score uint64) index.Addition {
			return index.Addition{Member: user, Entry: index.Entry{Contact: contact, Score: score}}
		}
		_, err := b.Add(t.Context(), []index.Addition{
			to(user, 11, 1100), // unchanged: that very score
			to(user, 11, 1000), // unchanged: a lower score
			to(user, 11, 1200), // rises
			to(user, 22, 50),   // outside
			to(user, 20, 2000), // new: now there are max
			to(user, 21, 2100), // new: the lowest goes
			to(user, 22, 50),   // new, and the lowest: it goes itself
			to(77, 1, 100), to(78, 1, 100),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := metricstest.Samples{
			`activityd_adds_total{outcome="unchanged"}`: 1, `activityd_adds_total{outcome="below"}`: 1,
			`activityd_adds_total{outcome="added"}`: 2, `activityd_adds_total{outcome="trimmed"}`: 2,
			`activityd_adds_total{outcome="outside"}`: 1, `activityd_adds_total{outcome="missing"}`: 2,
			`activityd_trims_total`: 2,
		}
		if diff := cmp.Diff(want, rises("activityd_adds_total", "activityd_trims_total")); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

func TestWhatAppliesTrimIsCounted(t *testing.T) {
	counted(t, func(t *testing.T, b bench, rises func(names ...string) metricstest.Samples) {
		trimmed := func() float64 { return rises("activityd_trims_total")["activityd_trims_total"] }
		b.refill(t, ladder(10))
		if n := trimmed(); n != 0 {
			t.Fatalf("trimmed %v of ten, want none", n)
		}
		// 5 more than max by the refill, and one by the add.
		var list []index.Entry
		for i := uint64(1); i <= 7; i++ {
			list = append(list, index.Entry{Contact: member.ID(100 + i), Score: 10_000 + i})
		}
		c := index.Change{Update: b.begin(t), WithRefill: true, Refill: list, Add: entries(200, 20_000)}
		if got := b.apply(t, c); got != index.Applied || trimmed() != 6 {
			t.Errorf("%v, trimmed %v, want 6", got, trimmed())
		}
		if got := b.apply(t, c); got != index.Conflict || trimmed() != 6 {
			t.Errorf("the same again: %v, trimmed %v, want a conflict that trims nothing", got, trimmed())
		}
	})
}

func TestEveryCallIsCounted(t *testing.T) {
	mini := miniredistest.Run(t)
	before := metricstest.Gather(t)
	b := newBench(t, &redis.Options{Addr: mini.Addr()}, index.Options{})
	b.refill(t, ladder(2))
	b.add(t, 3, 300)
	if _, err := b.Candidates(t.Context(), 999); !errors.Is(err, index.ErrMissing) {
		t.Fatal(err)
	}
	mini.Close()
	if err := b.Check(t.Context()); !errors.Is(err, index.ErrUnavailable) {
		t.Fatal(err)
	}
	rose := metricstest.Gather(t).Since(before)
	want := metricstest.Samples{`activityd_index_errors_total{operation="check",reason="unavailable"}`: 1}
	for _, operation := range []string{"begin", "apply", "add", "candidates", "check"} {
		want[fmt.Sprintf("activityd_index_call_seconds{operation=%q}", operation)] = 1
		if took := rose[fmt.Sprintf("activityd_index_call_seconds_sum{operation=%q}", operation)]; took <= 0 {
			t.Errorf("%s took %v", operation, took)
		}
	}
	if diff := cmp.Diff(want, rose.Named("activityd_index_call_seconds", "activityd_index_errors_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// Each error is counted by its reason.
func TestErrorsAreCountedByTheirReason(t *testing.T) {
	ix := newBench(t, &redis.Options{Addr: "127.0.0.1:1"}, index.Options{})
	for _, c := range []struct {
		err    error
		reason string
	}{
		{nil, ""},
		{context.Canceled, ""},
		{index.ErrMissing, ""},
		{fmt.Errorf("x: %w", index.ErrUnavailable), "unavailable"},
		{fmt.Errorf("x: %w", index.ErrRefused), "refused"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("x: %w", index.ErrUnknown), "unknown"},
		{index.ErrSettings, "settings"},
		{index.ErrMalformed, "malformed"},
		{errors.New("what?"), "other"},
	} {
		before := metricstest.Gather(t)
		ix.Observe("apply", time.Now(), c.err)
		want := metricstest.Samples{}
		if c.reason != "" {
			want[fmt.Sprintf("activityd_index_errors_total{operation=%q,reason=%q}", "apply", c.reason)] = 1
		}
		if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named("activityd_index_errors_total")); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", c.err, diff)
		}
	}
}

// Whether a node answers, takes writes, and has sets that are believed, its metrics say.
func TestNodesHaveMetrics(t *testing.T) {
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix", ReadTimeout: time.Minute}, index.Options{})
	ctx := t.Context()
	want := func(when string, up, writable, known, away float64) {
		t.Helper()
		_ = b.Probe(ctx) // the result is in the metrics
		got := metricstest.Gather(t).Named("activityd_redis_up", "activityd_redis_writable", "activityd_redis_known", "activityd_redis_nodes_away_ratio")
		node := fmt.Sprintf("{node=%q}", server.Addr())
		maps.DeleteFunc(got, func(series string, _ float64) bool {
			return strings.Contains(series, "{") && !strings.Contains(series, node)
		})
		if diff := cmp.Diff(metricstest.Samples{
			"activityd_redis_up" + node: up, "activityd_redis_writable" + node: writable,
			"activityd_redis_known" + node: known, "activityd_redis_nodes_away_ratio": away,
		}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want("at first", 1, 1, 1, 0)
	b.client.ConfigSet(ctx, "min-replicas-to-write", "1")
	want("refusing", 1, 0, 1, 1)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	want("away", 0, 0, 1, 1)
}

// An add that leaves a trace lets the guarded update under way go on; any other one
// calls it off. See "What leaves no trace" in the package comment.
func TestOnlyAddsThatLeaveATraceLetUpdatesGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		for _, c := range []struct {
			contact member.ID
			score   uint64
			want    index.Outcome
		}{
			{12, 1200, index.Conflict}, // unchanged
			{12, 1100, index.Conflict}, // below
			{12, 1300, index.Applied},  // rose
			{99, 99, index.Conflict},   // outside
			{98, 900, index.Conflict},  // trims
		} {
			u := b.begin(t)
			b.add(t, c.contact, c.score)
			if got := b.apply(t, index.Change{Update: u}); got != c.want {
				t.Errorf("after an add of %d at %d: %v, want %v", c.contact, c.score, got, c.want)
			}
		}
	})
}
