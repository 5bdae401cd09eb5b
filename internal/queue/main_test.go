package queue_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// onBoth runs a test against the specification and against MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, q queuetest.Queue)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, queuetest.NewMemory(queue.Options{}, time.Now))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, newMySQLQueue(t))
	})
}

func newMySQLQueue(t *testing.T) *queue.MySQLQueue {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return queue.NewMySQLQueue(db, queue.Options{Owner: "test"})
}

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
	return claimFor(t, q, queue.DefaultQueue, n, time.Minute)
}

func claimFor(t *testing.T, q queuetest.Queue, name string, n int, lease time.Duration) []queue.Task {
	t.Helper()
	list, err := q.Claim(t.Context(), name, n, lease)
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

// eventually waits for a condition that other goroutines or the clock bring
// about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// pass lets time pass within a synctest bubble, and then all goroutines come to
// rest.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble, which costs none
	synctest.Wait()
}

// id is a member's, whom a task of this site is about.
type id = member.ID
