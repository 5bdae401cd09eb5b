package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// The results of work during an outage of the database are recorded when it is back, and not only after the lease. If no sweep is first,
// the work is done once, however long the outage lasts.
func TestResultsAreRecordedAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"refuses": false, "hangs": true} {
		for _, length := range []time.Duration{3 * time.Second, 12 * time.Second, time.Minute, time.Hour} {
			t.Run(fmt.Sprint(name, " for ", length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var away atomic.Bool
					runs := 0
					options := queue.PoolOptions{}
					if length == time.Hour {
						options.Sweep = 24 * time.Hour
					}
					p := startPool(t, each(func(ctx context.Context, _ queue.Task) error {
						runs++
						return sleepFor(ctx, time.Second)
					}), options, hook(func(ctx context.Context, _ string, _ int) error {
						switch {
						case !away.Load():
							return nil
						case hangs:
							<-ctx.Done()
							return fmt.Errorf("a call: %w", ctx.Err())
						}
						return fmt.Errorf("a call: %w", mysql.ErrUnavailable)
					}))
					enqueue(t, p.queue, tasks.NewUpload(1))
					pass(500 * time.Millisecond)
					away.Store(true)
					pass(length)
					away.Store(false)
					pass(recordedWithin(hangs))
					if length == time.Minute { // a sweep may be the first, and it is done again
						pass(5 * time.Second)
					}
					counts(t, p.queue, queuetest.Counts{})
					if runs != 1 && length != time.Minute {
						t.Errorf("handled %d times", runs)
					}
				})
			})
		}
	}
}

// recordedWithin is how long results take to be recorded after an outage: a pause, and the rest
// of a call that hangs.
func recordedWithin(hangs bool) time.Duration {
	if hangs {
		return 6500 * time.Millisecond
	}
	return 1500 * time.Millisecond
}

// The same with a server.
func TestACommitOfAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.NewProxy(t, cfg.Addr)
	db := open(t, proxy.MySQLDSN(dsn), mysql.WithMaxOpen(1))
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
	proxy.LoseAnswer("\x03COMMIT") // a query that begins so
	attempts := make(chan int, 2)
	handler := each(func(_ context.Context, task queue.Task) error {
		attempts <- task.Attempts
		return nil
	})
	// Nothing else frees tasks with a long lease while the test runs.
	run(t, queue.NewPool(q, map[string]queue.Handler{tasks.Upload: handler}, queue.PoolOptions{
		Log:     quiet(),
		Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 10}}, Lease: time.Hour,
	}))
	eventually(t, "the tasks are done", func() bool {
		n, err := queuetest.Count(t.Context(), q)
		return err == nil && n == queuetest.Counts{}
	})
	for range 2 {
		if n := <-attempts; n != 1 {
			t.Errorf("attempt %d, want 1", n)
		}
	}
}
