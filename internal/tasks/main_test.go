package tasks_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// The names of this package for what its tests use most.
var (
	enqueue    = queuetest.Enqueue
	claim      = queuetest.Claim
	claimFor   = queuetest.ClaimFor
	finish     = queuetest.Finish
	counts     = queuetest.ExpectCounts
	eventually = servertest.Eventually
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// deaf waits, within a synctest bubble.
func deaf(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

// counting returns a function that compares the rise of some metrics since now with its argument. The test must not be parallel.
func counting(t *testing.T, names ...string) (expect func(want metricstest.Samples)) {
	t.Helper()
	before := metricstest.Gather(t)
	return func(want metricstest.Samples) {
		t.Helper()
		if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named(names...)); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	}
}
