package once_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/once"
)

// counts returns the counters of a registry, by name and labels.
func counts(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "activityd_once_") || f.GetType().String() != "COUNTER" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "activityd_once_"), "_total")
			all[strings.TrimSpace(name+" "+strings.Join(labels, " "))] = m.GetCounter().GetValue()
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	once.New(oncetest.NewMemory(time.Now), once.Options{Registerer: registry}) // begins the series
	before := counts(t, registry)
	for _, name := range []string{
		"operations acquire ok", "operations acquire busy", "operations acquire done", "operations acquire out of attempts",
		"operations acquire lost", "operations acquire error", "operations extend ok", "operations extend lost", "operations extend error",
		"operations done ok", "operations done lost", "operations done error", "operations fail ok", "operations fail lost",
		"operations fail error", "operations release ok", "operations release lost", "operations release error",
		"attempts done", "attempts failed", "attempts released", "attempts lost", "exhausted",
	} {
		if _, ok := before[name]; !ok {
			t.Errorf("there is no %s before the first one", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		memory := oncetest.NewMemory(time.Now)
		network := &faulty{Store: memory}
		o := once.New(network, once.Options{Registerer: registry})
		do := func(name string, work func(context.Context, once.Attempt) error) {
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			_, _ = o.Do(ctx, once.Key{Name: name, Attempts: 2, NoWait: true}, work)
		}
		do("done", succeeds)
		do("done", never(t))                                        // done before
		do("fails", fails)                                          // twice
		do("fails", never(t))                                       // exhausted before
		do("stopped", untilEnd)                                     // released
		_ = o.Hold(t.Context(), once.Key{Name: "leader"}, succeeds) // released
		do("busy", func(context.Context, once.Attempt) error { do("busy", never(t)); return nil })
		do("forgotten", func(context.Context, once.Attempt) error {
			_, err := memory.Forget(t.Context(), "forgotten", true)
			return err
		})
		network.fault = func(_ int, op once.Operation) fault {
			return fault{refuse: op.Action == once.Fail && op.Reason == errWork.Error()}
		}
		do("unrecorded", fails) // its failure is lost, so the name is busy until the lease ends
	})
	after := counts(t, registry)
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if n := after[name] - before[name]; n != 0 && name != "operations extend ok" && name != "operations fail error" {
			changed = append(changed, fmt.Sprint(name, ": ", n))
		}
	}
	want := []string{
		"attempts done: 2", "attempts failed: 2", "attempts lost: 2", "attempts released: 2", "exhausted: 1",
		"operations acquire busy: 2", "operations acquire done: 1", "operations acquire ok: 8", "operations acquire out of attempts: 1",
		"operations done lost: 1", "operations done ok: 2", "operations fail ok: 2", "operations release ok: 2",
	}
	if !slices.Equal(changed, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(changed, "\n"), strings.Join(want, "\n"))
	}
	if after["operations extend ok"]-before["operations extend ok"] < 300 || after["operations fail error"] == before["operations fail error"] {
		t.Errorf("extensions or errors are not counted: %v", after)
	}
}

// While the store is away the gauge shows the last answer.
func TestExhaustedNames(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	n, err := 0, errors.New("away")
	registry.MustRegister(once.ExhaustedNames(func(context.Context) (int, error) { return n, err }))
	for _, step := range []struct {
		names int
		err   error
		want  float64
	}{{0, err, math.NaN()}, {3, nil, 3}, {0, err, 3}, {0, nil, 0}} {
		n, err = step.names, step.err
		families, gatherErr := registry.Gather()
		if gatherErr != nil || len(families) != 1 {
			t.Fatal(families, gatherErr)
		}
		if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != step.want && !(math.IsNaN(got) && math.IsNaN(step.want)) {
			t.Errorf("%+v: shows %v", step, got)
		}
	}
}
