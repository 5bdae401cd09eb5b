package backlog_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/backlog"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// fill makes n tasks wait.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	exec(t, db, "INSERT INTO tasks (type, subject) WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 100)"+
		" SELECT 'upload', a.n FROM numbers a JOIN numbers b LIMIT ?", n)
}

// limited says when too many tasks wait.
type limited interface {
	Room(ctx context.Context, limit int) (room int, stale bool, err error)
	CountWaiting(ctx context.Context, limit int) error
}

// roomIn asks how many more may wait, as a Load does.
func roomIn(t *testing.T, b limited, limit int) int {
	t.Helper()
	room, stale, err := b.Room(t.Context(), limit)
	if err == nil && stale {
		if err = b.CountWaiting(t.Context(), limit); err == nil {
			room, _, err = b.Room(t.Context(), limit)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return room
}

func TestRoom(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{7: 0, 8: 0, 9: 1, 15: 7} {
		db, spec := openDB(t, servertest.MySQLDSN(t)), queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		of := map[queuetest.Queue]limited{spec: spec, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}): backlog.New(db)}
		for q, b := range of {
			for i := range member.ID(5) {
				queuetest.Enqueue(t, q, tasks.NewUpload(i+1), tasks.NewRefill(i+1))
			}
			queuetest.Claim(t, q, 2)
			if room := roomIn(t, b, limit); room != want {
				t.Errorf("%T: room at %d: %d, want %d", q, limit, room, want)
			}
		}
	}
}

// All processes share one count. Between two counts each look reads a few rows, and tasks that
// come fill the limit though nothing is counted.
func TestProcessesShareOneCount(t *testing.T) {
	t.Parallel()
	const limit, waiting = 2000, 1500
	dsn := servertest.MySQLDSN(t)
	var dbs []*sql.DB
	for range 4 {
		dbs = append(dbs, openDB(t, dsn))
	}
	fill(t, dbs[0], waiting)
	rows := func() (n int) {
		for _, db := range dbs {
			n += servertest.SessionStatus(t, db, "Handler_read%")
		}
		return n
	}
	look := func(want bool) (read int) {
		t.Helper()
		before := rows()
		for range 10 {
			for i, db := range dbs {
				if full := roomIn(t, backlog.New(db), limit) == 0; full != want {
					t.Errorf("process %d: full %t, want %t", i, full, want)
				}
			}
		}
		return rows() - before
	}
	if read := look(false); read > 2*waiting+40*40 {
		t.Errorf("read %d rows", read)
	}
	fill(t, dbs[0], limit-waiting)
	read := look(true)
	t.Logf("read %d rows", read)
	if read > 40*40 {
		t.Errorf("40 looks read %d rows", read)
	}
	// Another count is due, and finds that they are done.
	exec(t, dbs[0], "DELETE FROM tasks WHERE id > 100")
	exec(t, dbs[0], "INSERT INTO tasks (id, type, subject) VALUES (1000000, 'upload', 1)")
	look(true)
	exec(t, dbs[0], "UPDATE task_keys SET created_at = created_at - 15000")
	look(false)
}

// A count that fails leaves the queue full, if the ids say that so many may wait.
func TestACountThatFailsLeavesTheQueueFull(t *testing.T) {
	t.Parallel()
	db := openDB(t, servertest.MySQLDSN(t))
	b := backlog.New(db)
	fill(t, db, 40)
	exec(t, db, "ALTER TABLE tasks DROP KEY subjects")
	for _, due := range []bool{true, false} {
		if room, stale, err := b.Room(t.Context(), 30); err != nil || room != 0 || stale != due {
			t.Errorf("room %d, stale %t, %v", room, stale, err)
		}
		if err := b.CountWaiting(t.Context(), 30); (err != nil) != due {
			t.Errorf("the count ended with %v", err)
		}
	}
}
