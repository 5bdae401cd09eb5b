package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// The task has its own attempts and backoff, else those of its kind, else the defaults, whoever enqueues it.
func TestAttemptsAndBackoff(t *testing.T) {
	t.Parallel()
	db, _ := openDB(t)
	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "own", MaxAttempts: 3, Backoff: time.Minute}, {Name: "plain"}}})
	enqueue(t, q, queue.New{Kind: "own"}, queue.New{Kind: "plain"}, queue.New{Kind: "own", MaxAttempts: 1, Backoff: time.Hour})
	exec(t, db, "INSERT INTO tasks (type) VALUES ('own')")
	exec(t, db, "INSERT INTO tasks (type, max_attempts, backoff) VALUES ('strange', 7, 90000)")
	list := claim(t, q, 10)
	var got []string
	for _, task := range list {
		got = append(got, fmt.Sprint(task.Kind, task.MaxAttempts, task.Backoff))
	}
	if want := []string{"own3 1m0s", "plain25 500ms", "own1 1h0m0s", "own3 1m0s", "strange7 1m30s"}; !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
	finish(t, q, errors.New("no"), list...)
	counts(t, q, queuetest.Counts{Scheduled: 4, Dead: 1})
	records, err := q.List(t.Context(), queue.Filter{Kinds: []string{"own"}, States: []queue.State{queue.Scheduled}}, 10)
	if err != nil || len(records) != 2 {
		t.Fatalf("%+v, %v", records, err)
	}
	for _, r := range records {
		if pause := time.Until(r.RunAt); pause < 20*time.Second || pause > 90*time.Second {
			t.Errorf("tried again in %v, want about a minute", pause)
		}
	}
}

// Cancel deletes tasks by ids, key or dedupe key, and no running task.
func TestCancel(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		if _, err := q.Cancel(t.Context(), queue.Filter{States: []queue.State{queue.Waiting}}); !errors.Is(err, queue.ErrInvalid) {
			if _, memory := q.(*queuetest.Memory); !memory {
				t.Errorf("all: %v", err)
			}
		}
		enqueue(t, q, tasks.NewUpload(7))
		held := claim(t, q, 1)
		delayed := tasks.NewUpload(7)
		delayed.Delay = time.Hour
		enqueue(t, q, delayed)
		enqueue(t, q, tasks.NewRefill(7))
		ids := enqueue(t, q, tasks.NewUpload(8))
		for _, c := range []queue.Filter{{IDs: ids}, {DedupeKey: tasks.NewRefill(7).DedupeKey}, {Key: 7}} {
			if n, err := q.Cancel(t.Context(), c); err != nil || n != 1 {
				t.Errorf("%+v: cancelled %d, %v", c, n, err)
			}
		}
		counts(t, q, queuetest.Counts{Running: 1})
		finish(t, q, nil, held...)
	})
}

// Payloads are not garbled, whatever character set the connection of the producer has.
func TestPayloadsOverAnotherCharacterSet(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	const text = `{"name":"Zoë 🐟 \"x\""}`
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "SET NAMES latin1"); err != nil {
		t.Fatal(err)
	}
	n := tasks.NewUpload(7)
	n.Payload = []byte(text)
	n.DedupeKey = ""
	_, err := q.EnqueueTx(t.Context(), tx, n)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "SET NAMES utf8mb4 COLLATE utf8mb4_bin")
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT JSON_UNQUOTE(JSON_EXTRACT(args, '$.name')) FROM tasks").Scan(&name); err != nil || name != `Zoë 🐟 "x"` {
		t.Errorf("stored %q, %v", name, err)
	}
}

// The clock of the database was set back by an hour: a lease that began in the future is over.
func TestALeaseOfTheFutureIsOver(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(7), tasks.NewUpload(8))
	list := claim(t, q, 2)
	exec(t, db, "UPDATE tasks SET started_at = started_at + 3600000, run_at = run_at + 3600000 WHERE id = ?", list[0].ID)
	q.SweepAll()
	if s, err := q.Sweep(t.Context()); err != nil || s.TookOver != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if again := claim(t, q, 2); len(again) != 1 || again[0].ID != list[0].ID || again[0].Attempts != 2 {
		t.Errorf("claimed %+v", again)
	}
}

// A transaction that holds the oldest scheduled tasks keeps no later task from its turn.
func TestLockedTasksHoldUpNoOther(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, "INSERT INTO tasks (type, state, run_at) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"+
		" SELECT 'upload', 'scheduled', i FROM n")
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "SELECT id FROM tasks WHERE state = 'scheduled' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "INSERT INTO tasks (type, subject, state, run_at) VALUES ('upload', 7, 'scheduled', 2000)")
	sweep(t, q)
	if list := claim(t, q, 2); len(list) != 1 || list[0].Key != 7 {
		t.Errorf("claimed %+v, want the task that is not locked", list)
	}
}

// A row that the server refuses to have changed is buried, or passed over, and does not stop the queue.
func TestARowThatIsRefusedStopsNoOther(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, `CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW
		IF NEW.subject = 13 AND NEW.state <> 'dead' OR NEW.subject = 14 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	exec(t, db, `CREATE TRIGGER keep BEFORE DELETE ON tasks FOR EACH ROW
		IF OLD.subject = 15 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not that one'; END IF`)
	for _, subject := range []id{14, 13, 14, 15, 16} {
		n := tasks.NewFanOut(subject, 1)
		n.Queue, n.DedupeKey = queue.DefaultQueue, ""
		enqueue(t, q, n)
	}
	var list []queue.Task
	for len(list) < 2 {
		some := claim(t, q, 1)
		if len(some) == 0 {
			t.Fatal("a row stops the queue")
		}
		list = append(list, some...)
	}
	finish(t, q, nil, list...)
	counts(t, q, queuetest.Counts{Waiting: 2, Dead: 2})
	records, err := q.List(t.Context(), queue.Filter{States: []queue.State{queue.Dead}}, 10)
	if err != nil || len(records) != 2 || !strings.Contains(records[0].LastError, "not this one") || !strings.Contains(records[1].LastError, "not that one") {
		t.Errorf("%+v, %v", records, err)
	}
}

// Rows that make no sense stop no queue.
func TestRowsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	const most = "18446744073709551615"
	exec(t, db, "INSERT INTO tasks (type, subject, attempts) VALUES ('upload', 1, 65535)")
	exec(t, db, "INSERT INTO tasks (type, subject, run_at) VALUES ('upload', 2, "+most+")")
	exec(t, db, "INSERT INTO tasks (type, subject, expires_at) VALUES ('upload', 3, 0)")
	exec(t, db, "INSERT INTO tasks (type, subject, args) VALUES ('upload', 4, JSON_OBJECT('x', REPEAT('x', 40000)))")
	exec(t, db, "INSERT INTO tasks (type, subject, created_at, priority) VALUES ('upload', 5, "+most+", -32768)")
	exec(t, db, "INSERT INTO tasks (type, subject, state) VALUES ('upload', 6, 'running')")
	exec(t, db, "INSERT INTO tasks (type, subject, max_attempts, backoff) VALUES ('upload', 8, 65535, 4294967295)")
	enqueue(t, q, tasks.NewUpload(7))
	q.SweepAll()
	sweep(t, q)
	keys := map[uint64]bool{}
	for _, task := range claim(t, q, 100) {
		keys[task.Key] = true
		finish(t, q, errors.New("no"), task)
	}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, []uint64{1, 3, 5, 6, 7, 8}) {
		t.Errorf("claimed %v", got)
	}
	records, err := q.List(t.Context(), queue.Filter{Key: 4}, 1)
	if err != nil || len(records) != 1 || records[0].State != queue.Dead || !strings.Contains(records[0].LastError, "more bytes") {
		t.Errorf("%+v, %v", records, err)
	}
	if _, err := q.Stats(t.Context()); err != nil {
		t.Error(err)
	}
}

// No common statement scans a table or sorts, and the rows that it reads do not grow with the queue.
func TestPlansAndRows(t *testing.T) {
	t.Parallel()
	db := open(t, servertest.MySQLDSN(t), mysql.WithMaxOpen(1))
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	exec(t, db, "INSERT INTO tasks (type, subject, priority, queue) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)"+
		" SELECT ELT(1 + a.i % 2, 'upload', 'fan_out'), 1000 * a.i + b.i, a.i % 3, ELT(1 + a.i % 2, 'default', 'fan_out') FROM n a JOIN n b ORDER BY b.i")
	exec(t, db, "INSERT INTO tasks (type, subject, state, run_at, last_error) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)"+
		" SELECT 'upload', i, ELT(1 + i % 2, 'scheduled', 'dead'), 99999999999999, 'no' FROM n")
	exec(t, db, "ANALYZE TABLE tasks")
	var list []queue.Task
	for _, step := range []struct {
		name string
		most int
		do   func() error
	}{
		{"claim", 600, func() (err error) { list, err = q.Claim(t.Context(), queue.DefaultQueue, 20, time.Minute); return err }},
		{"extend", 60, func() error { _, err := q.Extend(t.Context(), list, time.Minute); return err }},
		{"finish", 400, func() error {
			var results []queue.Result
			for i, task := range list {
				results = append(results, queue.Result{Task: task, Err: []error{nil, errors.New("no")}[i%2]})
			}
			_, err := q.Finish(t.Context(), results)
			return err
		}},
		{"finish of an ordered task", 60, func() error {
			enqueue(t, q, slices.Repeat([]queue.New{{Kind: "ordered", Key: 7, Queue: "ordered"}}, 2)...)
			enqueue(t, q, slices.Repeat([]queue.New{{Kind: "ordered", Key: 8, Queue: "ordered"}}, 1)...)
			finish(t, q, nil, claimFor(t, q, "ordered", 2, time.Minute)...)
			return nil
		}},
		{"sweep", 200, func() error { _, err := q.Sweep(t.Context()); return err }},
		{"dedupe", 60, func() error {
			_, err := q.Enqueue(t.Context(), []queue.New{tasks.NewRefill(1), tasks.NewRefill(2)})
			return err
		}},
		{"dedupe of many", 3000, func() error {
			many := make([]queue.New, 300)
			for i := range many {
				many[i] = tasks.NewRefill(id(i + 1))
				many[i].Delay = time.Hour
			}
			enqueue(t, q, many...)
			for i := range many {
				many[i].Delay = time.Minute
			}
			enqueue(t, q, many...)
			return nil
		}},
		{"due", 8000, func() error { _, err := q.Due(t.Context(), tasks.Upload); return err }},
		{"cancel", 20, func() error { _, err := q.Cancel(t.Context(), queue.Filter{Key: 1001}); return err }},
	} {
		var read int
		statements := servertest.Statements(t, db, func() {
			before := rowsRead(t, db)
			if err := step.do(); err != nil {
				t.Fatal(step.name, err)
			}
			read = rowsRead(t, db) - before
		})
		for _, statement := range statements {
			for _, s := range servertest.Explain(t, db, statement) {
				if (s.Table == "tasks" || s.Table == "held_keys") && s.Select != "INSERT" && (s.Scans() || s.Sorts()) && !strings.HasPrefix(statement, "SELECT DISTINCT state, queue") {
					t.Errorf("%s: %+v in\n%s", step.name, s, statement)
				}
			}
		}
		t.Logf("%s reads %d rows in %d statements", step.name, read, len(statements))
		if len(statements) > 50 {
			t.Errorf("%s takes %d statements, want them for many tasks at once", step.name, len(statements))
		}
		if read > step.most {
			t.Errorf("%s reads %d rows, want %d at most", step.name, read, step.most)
		}
	}
}

// A claim waits for no transaction of the site, also if its INSERT found a dedupe key taken.
func TestAClaimWaitsForNoDedupeKey(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	ids := enqueue(t, q, queue.New{Kind: "a", DedupeKey: "d"}, queue.New{Kind: "a", DedupeKey: "e"}, queue.New{Kind: "a"})
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "INSERT IGNORE INTO tasks (type, dedupe_key) VALUES ('a', 'd')"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	list, err := q.Claim(ctx, queue.DefaultQueue, 3, time.Minute)
	if err != nil || len(list) != 2 || list[0].ID != ids[1] || list[1].ID != ids[2] {
		t.Fatalf("claimed %+v, %v, want the two that are not locked", list, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if list := claim(t, q, 3); len(list) != 1 || list[0].ID != ids[0] {
		t.Errorf("claimed %+v after the commit", list)
	}
}

// A name in the leases may have any letters.
func TestAnOwnerMayBeAnything(t *testing.T) {
	t.Parallel()
	db, _ := openDB(t)
	for i, owner := range []string{"Köln/1", "\x00\xff", strings.Repeat("ö", 40)} {
		q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: owner})
		enqueue(t, q, tasks.NewUpload(id(7+i)))
		if list := claim(t, q, 1); len(list) != 1 {
			t.Fatalf("%q: claimed %+v", owner, list)
		}
	}
}

// A kind that would make rows no table takes is refused at the start.
func TestKindsAreInTheirBounds(t *testing.T) {
	t.Parallel()
	db, _ := openDB(t)
	for _, kind := range []queue.Kind{{MaxAttempts: -1}, {MaxAttempts: 100_000}, {Backoff: -1}, {Backoff: 50 * 24 * time.Hour}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is taken", kind)
				}
			}()
			queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{kind}})
		}()
	}
}
