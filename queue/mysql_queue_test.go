package queue_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	driver "github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func openDB(t *testing.T) (*sql.DB, *queue.Queue) {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: strings.Repeat("a very long host name ", 10), Registerer: prometheus.DefaultRegisterer})
	q.LookCheaply()
	return db, q
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

// What docs/adoption.md tells a site to write.
func TestTasksFromPlainSQL(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, `INSERT INTO tasks (type, subject, args) VALUES ('add_contact', 12345, JSON_OBJECT('contact_id', '98765'))`)
	exec(t, db, `INSERT INTO tasks (type, subject) VALUES ('upload', 98765)`)
	list := claim(t, q, 10)
	if len(list) != 2 || list[0].Kind != tasks.AddContact || list[0].Key != 12345 || list[1].Kind != tasks.Upload {
		t.Fatalf("claimed %+v", list)
	}
	if args, err := tasks.ArgsOf[tasks.ContactArgs](list[0]); err != nil || args.Contact != 98765 {
		t.Errorf("arguments %+v, %v", args, err)
	}
	if _, err := tasks.ArgsOf[tasks.ContactArgs](list[1]); err != nil {
		t.Error(err)
	}
}

func TestATaskCommitsWithTheChange(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	for _, commit := range []bool{false, true} {
		tx := begin(t, db)
		if _, err := q.EnqueueTx(t.Context(), tx, tasks.NewUpload(7)); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, q, 1); len(got) != 0 {
			t.Fatal("claimed a task that is not committed")
		}
		want := 0
		if commit {
			want = 1
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, q, 10); len(got) != want {
			t.Errorf("commit %v: claimed %d", commit, len(got))
		}
	}
}

// A task that absorbed a change must not start before that change commits: its
// handler would not see it.
func TestAnAbsorbingTaskWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	waiting := enqueue(t, q, tasks.NewUpload(7), tasks.NewUpload(8))
	tx := begin(t, db)
	ids, err := q.EnqueueTx(t.Context(), tx, tasks.NewUpload(7))
	if err != nil || ids[0] != waiting[0] {
		t.Fatalf("ids %v of %v, %v", ids, waiting, err)
	}
	if got := claim(t, q, 10); len(got) != 1 || got[0].ID != waiting[1] {
		t.Fatalf("claimed %+v, want only the other", got)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, q, 10); len(got) != 1 || got[0].ID != waiting[0] {
		t.Fatalf("claimed %+v after the commit", got)
	}
}

// Nor may its change be taken over by who cannot see it yet.
func TestATaskThatAbsorbsIsNotAbsorbedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(7))
	held := claim(t, q, 1)
	enqueue(t, q, tasks.NewUpload(7))
	tx := begin(t, db)
	if _, err := q.EnqueueTx(t.Context(), tx, tasks.NewUpload(7)); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Absorb(t.Context(), held); err != nil || n != 0 {
		t.Errorf("absorbed %d, %v, before the commit", n, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Absorb(t.Context(), held); err != nil || n != 1 {
		t.Errorf("absorbed %d, %v, after the commit", n, err)
	}
}

// The snapshot of a site's transaction may be older than the task that absorbs.
func TestAnOldSnapshotFindsTheAbsorbingTask(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	tx := begin(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	waiting := enqueue(t, q, tasks.NewUpload(7))
	ids, err := q.EnqueueTx(t.Context(), tx, tasks.NewUpload(7))
	if err != nil || ids[0] != waiting[0] {
		t.Fatalf("ids %v, want %v, %v", ids, waiting, err)
	}
}

func TestPriorityAndExpiry(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, `INSERT INTO tasks (type, subject, priority, expires_at) VALUES ('upload', 1, 0, NULL), ('upload', 2, -5, NULL), ('upload', 3, 0, 1), ('upload', 4, 0, 99999999999999)`)
	exec(t, db, `INSERT INTO tasks (type, subject, due_at) VALUES ('upload', 5, 99999999999999)`)
	var order []uint64
	for _, task := range claim(t, q, 10) {
		order = append(order, task.Key)
	}
	if len(order) != 3 || order[0] != 2 || order[1] != 1 || order[2] != 4 {
		t.Errorf("claimed %v, want 2, 1, 4", order)
	}
	sweep(t, q)
	counts(t, q, queuetest.Counts{Running: 3, Scheduled: 1}) // the expired one is gone
}

func TestReasonsAreKept(t *testing.T) {
	t.Parallel()
	_, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1))
	finish(t, q, queue.Permanent(errors.New("no such thing")), claim(t, q, 1)...)
	enqueue(t, q, tasks.NewUpload(2))
	claimFor(t, q, queue.DefaultQueue, 1, time.Millisecond)
	eventually(t, "the lease ran out", func() bool {
		swept, err := q.Sweep(t.Context())
		return err == nil && swept.TookOver == 1
	})
	for subject, want := range map[int]string{1: "^no such thing$", 2: "^the lease of .+ ran out"} {
		list, err := q.List(t.Context(), queue.Filter{Key: uint64(subject)}, 1)
		if err != nil || len(list) != 1 || !regexp.MustCompile(want).MatchString(list[0].LastError) {
			t.Errorf("%d: %+v, %v", subject, list, err)
		}
	}
}

func mockQueue(t *testing.T) (sqlmock.Sqlmock, *queue.Queue) {
	t.Helper()
	db, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mock.ExpectClose()
		if err := errors.Join(db.Close(), mock.ExpectationsWereMet()); err != nil {
			t.Error(err)
		}
	})
	return mock, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
}

func TestADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	mock, q := mockQueue(t)
	none := func() {
		for range 2 {
			mock.ExpectQuery("SELECT dedupe_key, id").WillReturnRows(sqlmock.NewRows([]string{"dedupe_key", "id"}))
		}
	}
	mock.ExpectBegin()
	none()
	mock.ExpectExec("INSERT INTO tasks").WillReturnError(&driver.MySQLError{Number: 1213, Message: "Deadlock found"})
	mock.ExpectRollback()
	mock.ExpectBegin()
	none()
	mock.ExpectExec("INSERT INTO tasks").WillReturnResult(sqlmock.NewResult(5, 1)) // whose id needs no look
	mock.ExpectCommit()
	if ids := enqueue(t, q, tasks.NewUpload(7)); ids[0] != 5 {
		t.Errorf("ids %v", ids)
	}
}

// TestAClaimThatLostADeadlockLooksAtTheFront: the tasks that it had found still wait,
// though the cursor is behind them.
func TestAClaimThatLostADeadlockLooksAtTheFront(t *testing.T) {
	t.Parallel()
	mock, q := mockQueue(t)
	waiting := func(id int, from ...sqldriver.Value) *sqlmock.ExpectedQuery {
		args := append(append([]sqldriver.Value{queue.DefaultQueue}, from...), 1)
		return mock.ExpectQuery("SELECT id, type").WithArgs(args...).WillReturnRows(sqlmock.NewRows(make([]string, 13)).
			AddRow(id, "upload", 7, "{}", 0, 1, 25, 0, 0, false, "", 1, 1))
	}
	claim := func(want uint64) {
		t.Helper()
		if list, err := q.Claim(t.Context(), queue.DefaultQueue, 1, time.Minute); err != nil || len(list) != 1 || list[0].ID != want {
			t.Errorf("claimed %v, %v, want task %d", list, err, want)
		}
	}

	mock.ExpectBegin()
	waiting(1).WillDelayFor(time.Second / 4) // then the front rests for longer than this test takes
	mock.ExpectExec("DELETE tasks").WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectExec("INSERT INTO task_leases").WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectCommit()
	claim(1)
	mock.ExpectBegin()
	waiting(2, 0, 1)
	mock.ExpectExec("DELETE tasks").WillReturnError(&driver.MySQLError{Number: 1213, Message: "Deadlock found"})
	mock.ExpectRollback()
	mock.ExpectBegin()
	waiting(2)
	mock.ExpectExec("DELETE tasks").WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectExec("INSERT INTO task_leases").WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectCommit()
	claim(2)
}

func TestDeadlocksWithoutEndAreAnError(t *testing.T) {
	t.Parallel()
	mock, q := mockQueue(t)
	mock.ExpectQuery("SELECT EXISTS").WillReturnRows(sqlmock.NewRows(make([]string, 4)).AddRow(false, true, false, false))
	for range 8 {
		mock.ExpectBegin()
		mock.ExpectQuery("SELECT id FROM parked_tasks").WillReturnError(&driver.MySQLError{Number: 1205, Message: "Lock wait timeout"})
		mock.ExpectRollback()
	}
	if _, err := q.Sweep(t.Context()); !mysql.IsRetryable(err) {
		t.Errorf("err %v", err)
	}
}

func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	away := driver.ErrInvalidConn
	for name, c := range map[string]struct {
		expect func(sqlmock.Sqlmock)
		call   func(*testing.T, *queue.Queue) error
	}{
		"begin": {func(m sqlmock.Sqlmock) { m.ExpectBegin().WillReturnError(away) }, func(t *testing.T, q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), []queue.New{tasks.NewUpload(7)})
			return err
		}},
		"commit": {func(m sqlmock.Sqlmock) {
			m.ExpectExec("DELETE FROM task_leases").WillReturnError(&driver.MySQLError{Number: 1213, Message: "Deadlock found"}) // it is then tried in a transaction
			m.ExpectBegin()
			m.ExpectQuery("SELECT token").WillReturnRows(sqlmock.NewRows(make([]string, 6)).AddRow("l", "default", 1, 2, "\xFE", ""))
			m.ExpectExec("DELETE FROM task_leases").WillReturnResult(sqlmock.NewResult(0, 1))
			m.ExpectCommit().WillReturnError(away)
		}, func(t *testing.T, q *queue.Queue) error {
			_, err := q.Finish(t.Context(), []queue.Result{{Task: queue.Task{ID: 1, Lease: "l"}}})
			return err
		}},
		"all at once": {func(m sqlmock.Sqlmock) {
			m.ExpectExec("DELETE FROM task_leases").WithArgs("l", []byte{0xFE}).WillReturnError(away)
		}, func(t *testing.T, q *queue.Queue) error {
			_, err := q.Finish(t.Context(), []queue.Result{{Task: queue.Task{ID: 1, Lease: "l"}}})
			return err
		}},
		"rows": {func(m sqlmock.Sqlmock) {
			m.ExpectBegin()
			m.ExpectQuery("SELECT id, type").WillReturnRows(sqlmock.NewRows(make([]string, 13)).
				AddRow(1, "upload", 7, "{}", 0, 1, 25, 0, 0, false, "", 1, 1).AddRow(2, "upload", 8, "{}", 0, 1, 25, 0, 0, false, "", 1, 1).RowError(1, away))
			m.ExpectRollback()
		}, func(t *testing.T, q *queue.Queue) error {
			list, err := q.Claim(t.Context(), queue.DefaultQueue, 5, time.Minute)
			if len(list) > 0 {
				t.Errorf("claimed %v with an error", list)
			}
			return err
		}},
		"list": {func(m sqlmock.Sqlmock) { m.ExpectQuery("SELECT id, queue").WillReturnError(away) }, func(t *testing.T, q *queue.Queue) error {
			_, err := queuetest.Count(t.Context(), q)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mock, q := mockQueue(t)
			c.expect(mock)
			if err := c.call(t, q); !errors.Is(err, mysql.ErrUnavailable) {
				t.Errorf("err %v, want ErrUnavailable", err)
			}
		})
	}
}

// A claim that begins at the cursor, and then finds more before it than were missing, takes no more than it was asked for.
func TestAClaimTakesNoMoreThanItWants(t *testing.T) {
	t.Parallel()
	mock, q := mockQueue(t)
	q.LookCheaply()
	claim := func(delay time.Duration, finds ...[]int) []queue.Task {
		t.Helper()
		mock.ExpectBegin()
		for _, ids := range finds {
			rows := sqlmock.NewRows(make([]string, 13))
			for _, id := range ids {
				rows.AddRow(id, "upload", id, "{}", 0, 1, 25, 0, 0, false, "", 1, 1)
			}
			mock.ExpectQuery("SELECT id, type").WillDelayFor(delay).WillReturnRows(rows)
		}
		mock.ExpectExec("DELETE tasks").WillReturnResult(sqlmock.NewResult(0, 3))
		mock.ExpectExec("INSERT INTO task_leases").WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectCommit()
		list, err := q.Claim(t.Context(), queue.DefaultQueue, 3, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	claim(time.Second/4, []int{1, 2, 3}) // then the next one begins at the cursor
	if list := claim(0, []int{4, 5}, []int{1, 2, 4}); len(list) != 3 {
		t.Errorf("claimed %d tasks, want 3", len(list))
	}
}

// What the server refuses to have moved is in one place afterwards.
func TestARefusedMoveLeavesATaskInOnePlace(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	for _, table := range []string{"tasks", "parked_tasks"} {
		exec(t, db, "CREATE TRIGGER refuse_"+table+" BEFORE DELETE ON "+table+" FOR EACH ROW IF OLD.subject = 13 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
	}
	exec(t, db, parkedRows+" VALUES (1001, 'scheduled', 'default', 'upload', 13, '{}', 0, 0, 25, 1, NULL, 1), (1002, 'scheduled', 'default', 'upload', 2, '{}', 0, 0, 25, 1, NULL, 1)")
	_, _ = q.Sweep(t.Context())
	counts(t, q, queuetest.Counts{Waiting: 1, Dead: 1})
	exec(t, db, "INSERT INTO tasks (type, subject, due_at) VALUES ('upload', 13, 99999999999999), ('upload', 3, 99999999999999)")
	if list := claim(t, q, 10); !slices.Equal(subjectsOf(list), []uint64{2}) {
		t.Errorf("claimed tasks about %v", subjectsOf(list))
	}
	claim(t, q, 10)
	counts(t, q, queuetest.Counts{Running: 1, Scheduled: 2, Dead: 1})
	var parked int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM parked_tasks WHERE state = 'scheduled'").Scan(&parked); err != nil || parked != 1 {
		t.Errorf("%d are parked, %v, want the one that could be moved", parked, err)
	}
}

// A task whose id another has, after AUTO_INCREMENT was set back, keeps it, and comes back when that one is done.
func TestATaskWhoseIDIsTakenIsBuried(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1))
	held := claim(t, q, 1)
	exec(t, db, "INSERT INTO tasks (id, type, subject) VALUES (?, 'upload', 2)", held[0].ID)
	finish(t, q, queue.Later(0, errors.New("stopped")), held...)
	counts(t, q, queuetest.Counts{Waiting: 1, Dead: 1})
	exec(t, db, "UPDATE parked_tasks SET state = 'scheduled', due_at = 1")
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	counts(t, q, queuetest.Counts{Waiting: 1, Dead: 1})
	finish(t, q, nil, claim(t, q, 10)...)
	counts(t, q, queuetest.Counts{Dead: 1})
	if n, err := q.Retry(t.Context(), queue.Filter{}, 10); n != 1 || err != nil {
		t.Errorf("retried %d tasks, %v", n, err)
	}
	if got := claim(t, q, 10); len(got) != 1 || got[0].ID != held[0].ID || got[0].Key != 1 {
		t.Errorf("claimed %+v", got)
	}
}

// The table tasks is often empty, while ids that it gave out are in other tables.
func TestNoIDIsGivenOutTwice(t *testing.T) {
	t.Parallel()
	primary := servertest.NewPrimary(t)
	last := giveIDsOut(t, primary, 0)
	replica := primary.NewReplica(t)
	last = giveIDsOut(t, primary, last)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	replica.Promote(t)
	for range 2 {
		last = giveIDsOut(t, replica, last)
		if err := errors.Join(replica.Kill(), replica.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	giveIDsOut(t, replica, last)
}

// giveIDsOut enqueues tasks, whose ids come after last, has them leave the table, and returns the new last id.
func giveIDsOut(t *testing.T, s *servertest.Replicated, last uint64) uint64 {
	t.Helper()
	db, err := mysql.Open(s.SiteDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	ids := enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewUpload(3))
	if slices.Min(ids) <= last {
		t.Errorf("the ids %v do not come after %d", ids, last)
	}
	finish(t, q, queue.Later(time.Hour, errors.New("not now")), claim(t, q, 10)...)
	if n := s.Number(t, "SELECT COUNT(*) FROM "+servertest.Database+".tasks"); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	return slices.Max(ids)
}
