package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// counting returns a function that compares the rise of some metrics since now. The test must not be parallel.
func counting(t *testing.T, names ...string) (expect func(want metricstest.Samples)) {
	t.Helper()
	before := metricstest.Gather(t)
	return func(want metricstest.Samples) {
		t.Helper()
		if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named(names...), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	}
}

// poolMetrics are the metrics of a pool.
var poolMetrics = []string{
	"activityd_task_wait_seconds", "activityd_task_wait_seconds_sum", "activityd_task_run_seconds", "activityd_task_run_seconds_sum",
	"activityd_tasks_finished_total", "activityd_lease_takeovers_total", "activityd_leases_lost_total", "activityd_tasks_dropped_total",
}

// ran are the samples of n tasks that waited and ran for so long, in seconds and
// all in all.
func ran(n float64, kind, outcome string, waited, took float64) metricstest.Samples {
	of := fmt.Sprintf(`{queue="default",type=%q}`, kind)
	return metricstest.Samples{
		"activityd_task_wait_seconds" + of: n, "activityd_task_wait_seconds_sum" + of: waited,
		"activityd_task_run_seconds" + of: n, "activityd_task_run_seconds_sum" + of: took,
		fmt.Sprintf(`activityd_tasks_finished_total{outcome=%q,queue="default",type=%q}`, outcome, kind): n,
	}
}

func TestWhatBecomesOfTasksIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		outcome string
	}{
		"done":      {nil, "done"},
		"retried":   {errors.New("failed"), "retried"},
		"postponed": {queue.Later(time.Hour, errors.New("away")), "postponed"},
		"died":      {queue.Permanent(errors.New("broken")), "died"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expect := counting(t, poolMetrics...)
				p := startPool(t, each(func(_ context.Context, task queue.Task) error {
					deaf(3 * time.Second)
					if task.Attempts > 1 {
						t.Error("it came back too early")
					}
					return test.err
				}), queue.PoolOptions{Sweep: time.Hour, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1}}})
				pass(time.Second)
				enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
				pass(time.Minute)
				expect(ran(2, "upload", test.outcome, 0+3, 3+3))
			})
		})
	}
}

// A type that has no handler is counted by its name, too.
func TestUnknownTypesAreCountedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expect := counting(t, "activityd_tasks_finished_total")
		p := startPool(t, &doing{}, queue.PoolOptions{Sweep: time.Hour, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1}}})
		for _, kind := range []string{"strange", "stranger"} {
			mystery := tasks.NewUpload(1)
			mystery.Kind, mystery.DedupeKey = kind, kind
			enqueue(t, p.queue, mystery)
		}
		pass(time.Minute)
		expect(metricstest.Samples{
			`activityd_tasks_finished_total{outcome="died",queue="default",type="strange"}`:  1,
			`activityd_tasks_finished_total{outcome="died",queue="default",type="stranger"}`: 1,
		})
	})
}

func TestEnqueuedTasksAreCounted(t *testing.T) {
	expect := counting(t, "activityd_tasks_enqueued_total")
	q := newQueue(t)
	strange := tasks.NewUpload(9)
	strange.Kind, strange.DedupeKey = "strange", "strange"
	enqueue(t, q, strange, tasks.NewUpload(1), tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewAddContact(1, 2))
	enqueue(t, q, tasks.NewUpload(2))
	expect(metricstest.Samples{
		`activityd_tasks_enqueued_total{type="upload"}`:      4,
		`activityd_tasks_enqueued_total{type="add_contact"}`: 1, `activityd_tasks_enqueued_total{type="strange"}`: 1,
	})
}

func TestExpiredTasksAreCounted(t *testing.T) {
	db, _ := openDB(t)
	expect := counting(t, poolMetrics...)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer})
	exec(t, db, "INSERT INTO tasks (type, subject, expires_at) VALUES ('upload', 1, 1)")
	if list := claim(t, q, 1); len(list) != 0 {
		t.Errorf("claimed %+v", list)
	}
	counts(t, q, queuetest.Counts{})
	expect(metricstest.Samples{"activityd_tasks_dropped_total": 1})
}
