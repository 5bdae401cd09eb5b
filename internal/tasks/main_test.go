package tasks_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/metrics/metricstest"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func enqueue(t *testing.T, q queuetest.Queue, batch ...queue.New) []uint64 {
	t.Helper()
	ids, err := q.Enqueue(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func claim(t *testing.T, q queuetest.Queue, n int) []queue.Task {
	t.Helper()
	return claimFor(t, q, tasks.QueueDefault, n, time.Minute)
}

func claimFor(t *testing.T, q queuetest.Queue, queue string, n int, lease time.Duration) []queue.Task {
	t.Helper()
	list, err := q.Claim(t.Context(), queue, n, lease)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// finish records err for all of the tasks, none of which may be lost.
func finish(t *testing.T, q queuetest.Queue, err error, list ...queue.Task) {
	t.Helper()
	if lost := tryFinish(t, q, err, list...); lost > 0 {
		t.Fatalf("%d leases were lost", lost)
	}
}

func tryFinish(t *testing.T, q queuetest.Queue, err error, list ...queue.Task) (lost int) {
	t.Helper()
	var results []queue.Result
	for _, task := range list {
		results = append(results, queue.Result{Task: task, Err: err})
	}
	lost, finishErr := q.Finish(t.Context(), results)
	if finishErr != nil {
		t.Fatal(finishErr)
	}
	return lost
}

func counts(t *testing.T, q queuetest.Queue, want queue.Counts) {
	t.Helper()
	got, err := q.Count(t.Context())
	if err != nil || got != want {
		t.Fatalf("counts %+v, %v, want %+v", got, err, want)
	}
}

// deaf waits, within a synctest bubble.
func deaf(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

// counting returns a function that holds what rose of some metrics since now
// against what is wanted. The test must not be parallel.
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
