package queuetest

import (
	"context"
	"time"

	"github.com/activityd/activityd/queue"
)

// T is the part of *testing.T that the functions below use. Package testing is not imported, because the demo
// has the queue in memory, too.
type T interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Enqueue enqueues a batch, and returns the ids of its tasks.
func Enqueue(t T, q Queue, batch ...queue.New) []uint64 {
	t.Helper()
	ids, err := q.Enqueue(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Claim claims up to n tasks of the default queue for a minute.
func Claim(t T, q Queue, n int) []queue.Task {
	t.Helper()
	return ClaimFor(t, q, queue.DefaultQueue, n, time.Minute)
}

// ClaimFor claims up to n tasks of a queue.
func ClaimFor(t T, q Queue, name string, n int, lease time.Duration) []queue.Task {
	t.Helper()
	list, err := q.Claim(t.Context(), name, n, lease)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Finish records err for all of the tasks, and requires that none was lost.
func Finish(t T, q Queue, err error, list ...queue.Task) {
	t.Helper()
	if lost := TryFinish(t, q, err, list...); lost > 0 {
		t.Fatalf("%d leases were lost", lost)
	}
}

// TryFinish records err for all of the tasks, and returns how many were lost.
func TryFinish(t T, q Queue, err error, list ...queue.Task) (lost int) {
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

// ExpectCounts fails the test unless the tasks of each state are as many as wanted.
func ExpectCounts(t T, q Queue, want Counts) {
	t.Helper()
	got, err := Count(t.Context(), q)
	if err != nil || got != want {
		t.Fatalf("counts %+v, %v, want %+v", got, err, want)
	}
}

// Counts is the number of tasks in each state.
type Counts struct {
	Waiting, Scheduled, Running, Dead int
}

// Open is the number of tasks that are not finished.
func (c Counts) Open() int { return c.Waiting + c.Scheduled + c.Running }

// Count counts all tasks by state, but for the sweep's tasks: a sweep always waits.
func Count(ctx context.Context, q interface {
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
},
) (c Counts, err error) {
	list, err := q.List(ctx, queue.Filter{}, 1<<30)
	of := map[queue.State]*int{
		queue.Waiting: &c.Waiting, queue.Scheduled: &c.Scheduled, queue.Running: &c.Running, queue.Dead: &c.Dead,
	}
	for _, r := range list {
		if r.Queue != "check" {
			*of[r.State]++
		}
	}
	return c, err
}
