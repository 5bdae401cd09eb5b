package queue_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) {
	for variable, work := range map[string]func(dsn string) error{killedVariable: beKilled, workVariable: workOnKeys, periodicVariable: bePeriodic} {
		if dsn := os.Getenv(variable); dsn != "" {
			fmt.Fprintln(os.Stderr, work(dsn))
			os.Exit(1)
		}
	}
	servertest.Main(m)
}

// Short names for common helpers.
var (
	enqueue    = queuetest.Enqueue
	claim      = queuetest.Claim
	claimFor   = queuetest.ClaimFor
	finish     = queuetest.Finish
	tryFinish  = queuetest.TryFinish
	counts     = queuetest.ExpectCounts
	eventually = servertest.Eventually
)

// onBoth runs a test against the specification and against MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, q queuetest.Queue)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, newQueue(t))
	})
}

func newQueue(t *testing.T) *queue.Queue {
	t.Helper()
	return queue.NewQueue(open(t, servertest.MySQLDSN(t)), queue.Options{Kinds: tasks.Kinds(), Owner: "test", Registerer: prometheus.DefaultRegisterer})
}

// open opens a database until the end of the test.
func open(t *testing.T, dsn string, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openDB returns a database of the test's own, and a queue in it.
func openDB(t *testing.T) (*sql.DB, *queue.Queue) {
	t.Helper()
	db := open(t, servertest.MySQLDSN(t))
	return db, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// value returns the only number of a query.
func value(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// pass lets time pass within a synctest bubble, and then all goroutines come to
// rest.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble, it costs nothing
	synctest.Wait()
}

// id is a member's, whom a task of this site is about.
type id = member.ID
