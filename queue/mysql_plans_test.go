package queue_test

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/backlog"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// The queues of the tests of plans. A few tasks are as dangerous as many: where the
// tasks of one claim are a large part of the table, servers like to scan it.
var queueSizes = map[string]int{"a few tasks": 40, "many tasks": 30_000}

// planned is something that a queue does, what its statements may use for it, and
// how many rows and index entries they may read.
type planned struct {
	name  string
	keys  string // the indexes, sorted
	sorts bool   // a sort is allowed: of what was found by the index
	most  int
	do    func() error
	given []string // what is written before, by SQL
}

// TestQueuePlansAndCosts: no statement of the queue scans a table or sorts what it
// need not, however long the table gets. Some read each entry of one state: they
// are few (running, dead, scheduled), or the reading has a limit.
func TestQueuePlansAndCosts(t *testing.T) {
	t.Parallel()
	for name, size := range queueSizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			fillQueue(t, db, size)
			for _, p := range plannedOf(t, db, size) {
				t.Run(p.name, func(t *testing.T) { checkPlanned(t, db, p) })
			}
		})
	}
}

func checkPlanned(t *testing.T, db *sql.DB, p planned) {
	for _, statement := range p.given {
		exec(t, db, statement)
	}
	var read int
	statements := servertest.Statements(t, db, func() {
		const rows = "Handler_read%"
		before := servertest.SessionStatus(t, db, rows)
		if err := p.do(); err != nil {
			t.Fatal(err)
		}
		read = servertest.SessionStatus(t, db, rows) - before
	})
	used := map[string]bool{}
	for _, statement := range statements {
		for _, s := range servertest.Explain(t, db, statement) {
			// That there is no such row was seen before the plan was made: what
			// MariaDB logs of a binary key is not the whole of it.
			if s.Table == "" && strings.Contains(s.Extra, "const table") {
				used["PRIMARY"] = true
			}
			// The few queues that are paused are read whole, and so are the few leases.
			if !s.Stored() || s.Table == "paused_queues" || s.Table == "task_leases" {
				continue
			}
			used[s.Key] = true
			// What waits is counted by the entries of one index, up to a limit.
			counts := s.Key == "subjects" && s.Extra == "Using index"
			// What has no index goes by id, from one end, up to a limit.
			byID := s.Key == "PRIMARY" && s.Access == "index" && (p.name == "search" || p.name == "list by error")
			if s.Scans() && !counts && !byID || s.Sorts() && !p.sorts {
				t.Errorf("%+v in\n%s", s, statement)
			}
		}
	}
	if keys := strings.Join(slices.Sorted(maps.Keys(used)), " "); keys != p.keys {
		t.Errorf("uses %q, want %q, in\n%s", keys, p.keys, strings.Join(statements, "\n"))
	}
	t.Logf("read %d rows", read)
	if read > p.most {
		t.Errorf("read %d rows, want at most %d", read, p.most)
	}
}

// fillQueue makes size tasks that wait in two queues, a few in each other state,
// idempotency keys of an hour ago, and fresh statistics.
func fillQueue(t *testing.T, db *sql.DB, size int) {
	t.Helper()
	const numbers = "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 200) SELECT "
	exec(t, db, "CREATE TABLE numbers (n INT PRIMARY KEY)")
	exec(t, db, "INSERT INTO numbers "+numbers+"n FROM numbers")
	exec(t, db, `INSERT INTO tasks (type, subject, queue, priority, dedupe_key)
		SELECT IF(a.n % 3 = 0, 'fan_out', 'upload'), 1000 * a.n + b.n, IF(a.n % 3 = 0, 'fan_out', 'default'), a.n % 3, CONCAT('k:', a.n, ':', b.n)
		FROM numbers a JOIN numbers b ORDER BY b.n, a.n LIMIT ?`, size)
	exec(t, db, "INSERT INTO tasks (type, subject) SELECT 'upload', n FROM numbers WHERE n <= 5")
	exec(t, db, parkedRows+` SELECT 1000000 + a.n, 'dead', 'default', 'upload', a.n, '{}', 0, 1, 25, NULL, NULL, 1 FROM numbers a WHERE a.n <= 5
		UNION ALL SELECT 1000100 + n, 'scheduled', 'default', 'upload', n, '{}', 0, 1, 25, 99999999999999, 'x', 1 FROM numbers WHERE n <= 5`)
	exec(t, db, parkedRows+` SELECT 2000000 + 1000 * a.n + b.n, 'scheduled', 'push', 'deliver', 500000 + a.n, '{}', 0, 1, 25, 99999999999999, 'x', 1
		FROM numbers a JOIN numbers b ORDER BY b.n, a.n LIMIT ?`, size)
	exec(t, db, `INSERT INTO task_keys (key_hash, batch_hash) SELECT UNHEX(SHA2(CONCAT(a.n, ':', b.n), 256)), '' FROM numbers a JOIN numbers b WHERE b.n <= 5`)
	rows, err := db.QueryContext(t.Context(), "ANALYZE TABLE tasks, task_leases, parked_tasks, task_keys, paused_queues")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() { // the statement is done when its rows are read
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// parkedRows inserts rows of parked_tasks.
const parkedRows = "INSERT INTO parked_tasks (id, state, queue, type, subject, args, priority, attempts, max_attempts, due_at, last_error, created_at)"

// plannedOf is all that a queue does, in an order in which each finds something to
// do.
func plannedOf(t *testing.T, db *sql.DB, size int) []planned {
	const batch = 20
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
	q.LookCheaply() // else a claim may find nothing behind the mark, and stop there
	var held []queue.Task
	var uploads []queue.New
	for i := range member.ID(batch) {
		uploads = append(uploads, tasks.NewUpload(1_000_000+i))
	}
	ids := queue.Filter{IDs: []uint64{1, 2, 3, 4, 5}}
	search := func(match queue.Filter) func() error {
		return func() error {
			_, _, err := q.Search(t.Context(), match, 20)
			return err
		}
	}
	before, err := q.Look(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	look := func() error {
		_, err := q.Look(t.Context(), &before)
		return err
	}
	// As many as are held, by the test's numbers: the first of queue default that are claimed.
	absorbed := []string{"INSERT INTO tasks (type, subject) SELECT 'upload', 1000000 + n - 1 FROM numbers WHERE n <= 20"}
	list := func(match queue.Filter) func() error {
		return func() error {
			_, err := q.List(t.Context(), match, 5)
			return err
		}
	}
	retry := func(match queue.Filter) func() error {
		return func() error {
			_, err := q.Retry(t.Context(), match, 2)
			return err
		}
	}
	discard := func(match queue.Filter) func() error {
		return func() error {
			_, err := q.Discard(t.Context(), match, 2)
			return err
		}
	}
	forward := func() error {
		_, _, err := q.Forward(t.Context(), queue.Place{}, func(string, uint64) bool { return true })
		return err
	}
	enqueueOnce := func() error {
		_, _, err := q.EnqueueOnce(t.Context(), "key", []queue.New{tasks.NewUpload(1), tasks.NewUpload(2)})
		return err
	}
	full := func(limit int) func() error {
		return func() error {
			_, _, err := backlog.New(db).Room(t.Context(), limit)
			return err
		}
	}
	countUpTo := func(limit int) func() error {
		return func() error { return backlog.New(db).CountWaiting(t.Context(), limit) }
	}
	finish := func(outcome error) func() error {
		return func() error {
			var results []queue.Result
			for _, task := range held[:len(held)/2] {
				results = append(results, queue.Result{Task: task, Err: outcome})
			}
			held = held[len(held)/2:]
			lost, err := q.Finish(t.Context(), results)
			if lost > 0 {
				t.Errorf("%d leases were lost", lost)
			}
			return err
		}
	}
	sweep := func() error {
		_, err := q.Sweep(t.Context())
		return err
	}
	return []planned{
		{"enqueue", "dedupe", false, 4*batch + 60, func() error {
			_, err := q.Enqueue(t.Context(), uploads)
			return err
		}, nil},
		{"enqueue what waits, more urgently", "PRIMARY dedupe", false, 4*batch + 60, func() error {
			for i := range uploads {
				uploads[i].Priority = -1
			}
			_, err := q.Enqueue(t.Context(), uploads)
			return err
		}, nil},
		{"enqueue once", "PRIMARY dedupe", false, 80, enqueueOnce, nil},
		{"enqueue once, again", "PRIMARY", false, 80, enqueueOnce, nil},
		{"claim", "PRIMARY claim", false, 5*batch + 60, func() (err error) {
			held, err = q.Claim(t.Context(), queue.DefaultQueue, batch, time.Minute)
			return err
		}, []string{"INSERT INTO tasks (type, subject, priority, expires_at) VALUES ('upload', 1, -9, 1), ('upload', 2, -9, 1)"}},
		{"claim behind the mark", "PRIMARY claim", false, 8*batch + 60, func() (err error) {
			_, err = q.Claim(t.Context(), queue.DefaultQueue, 2, time.Minute)
			return err
		}, nil},
		{"extend", "", false, 2*batch + 60, func() error {
			_, err := q.Extend(t.Context(), held, time.Minute)
			return err
		}, nil},
		{"absorb", "PRIMARY subjects", false, 8*batch + 60, func() error {
			n, err := q.Absorb(t.Context(), held)
			if n < len(held) {
				t.Errorf("absorbed %d, want as many as are held, %d", n, len(held))
			}
			return err
		}, absorbed},
		{"finish", "", false, 2*batch + 60, finish(nil), nil},
		{"finish in vain", "", false, 2*batch + 60, finish(errors.New("in vain")), nil},
		{"sweep in vain", "created timers", false, 80, sweep, []string{
			"UPDATE parked_tasks SET due_at = due_at + 3600000 WHERE state = 'scheduled'", // those of before are due soon
		}},
		{"sweep", "PRIMARY created timers", false, 160, sweep, []string{
			parkedRows + ` VALUES (11, 'scheduled', 'default', 'upload', 1, '{}', 0, 1, 25, 1, NULL, 1), (12, 'scheduled', 'default', 'upload', 2, '{}', 0, 1, 25, 1, NULL, 1)`,
			"DELETE FROM tasks WHERE id < 20",
			`INSERT INTO task_leases (token, queue, claimed_at, ends_at, since, tasks, done) VALUES ('w/1', 'default', 1, 1, 1, '[[1,"upload",1,{},0],[2,"upload",2,{},0]]', X'FC')`,
			"INSERT INTO task_keys (key_hash, batch_hash, created_at) VALUES ('1', '', 1), ('2', '', 1)",
		}},
		{"sweep what expired in a paused queue", "PRIMARY created timers", false, 2200, sweep, []string{
			"INSERT INTO paused_queues (queue) VALUES ('default')", "UPDATE tasks SET expires_at = 1 WHERE queue = 'default' ORDER BY id LIMIT 5",
		}},
		{"bring forward in vain", "timers", false, 80, forward, nil},
		{"bring forward", "PRIMARY timers", false, 160, forward, []string{
			parkedRows + ` SELECT 1000500 + n, 'scheduled', 'default', 'upload', n, '{}', 0, n % 2, 25, UNIX_TIMESTAMP() * 1000 + 60000, 'away', 1
				FROM numbers WHERE n <= 20`,
		}},
		{"is a fan-out under way", "subjects", false, 80, func() error {
			_, err := q.Active(t.Context(), tasks.FanOut, []uint64{3001, 3002, 5})
			return err
		}, nil},
		// The subjects are made different in a table of their own.
		{"is a task pending", "subjects", true, 120, func() error {
			_, err := q.Pending(t.Context(), []string{tasks.Upload, tasks.FanOut}, []uint64{1, 3001, 3002, 5})
			return err
		}, nil},
		{"are fewer than so many waiting", "", false, 80, full(10_000_000), nil},
		{"may so many wait", "PRIMARY", false, 80, full(30), nil},
		{"count up to so many", "PRIMARY subjects", false, 140, countUpTo(30), nil},
		{"count all", "PRIMARY subjects", false, 2*size + 200, countUpTo(1_000_000), []string{"UPDATE task_keys SET created_at = created_at - 60000"}},
		{"do not count again so soon", "PRIMARY", false, 80, countUpTo(1_000_000), nil},
		// Each row is counted, by way of a table of its own, and so are the names.
		{"statistics", "claim timers", true, 8*(size+200) + 500, func() error {
			_, err := q.Stats(t.Context())
			return err
		}, nil},
		{"look at what came and went", "PRIMARY claim timers", true, 12*(size+200) + 700, look, nil},
		{"list by error", "PRIMARY", false, 2*size + 200, list(queue.Filter{Error: "nothing"}), nil},
		{"search", "PRIMARY timers", true, 16*min(size+200, queue.SearchLimit) + 500, search(queue.Filter{Kinds: []string{"nothing"}}), nil},
		{"search in a queue", "PRIMARY claim timers", true, 18*min(size+200, queue.SearchLimit) + 500, search(queue.Filter{Queues: []string{"default"}, Error: "nothing"}), nil},
		{"search dead ones by error", "PRIMARY timers", true, 160, search(queue.Filter{States: []queue.State{queue.Dead}, Error: "nothing"}), nil},
		{"search those of a subject", "PRIMARY subjects", true, 160, search(queue.Filter{Key: 1}), nil},
		{"failures", "timers", true, 5*min(size+200, queue.SearchLimit) + 200, func() error {
			_, _, err := q.Failures(t.Context())
			return err
		}, nil},
		// From the first task on, MySQL calls it a scan of the index, and stops at the limit.
		{"list", "PRIMARY", false, 80, list(queue.Filter{After: 1}), nil},
		{"list by id", "PRIMARY", false, 80, list(ids), nil},
		{"list dead ones", "timers", true, 120, list(queue.Filter{States: []queue.State{queue.Dead}}), nil},
		{"list those of a subject", "subjects", true, 120, list(queue.Filter{Key: 1}), nil},
		{"retry those of a subject", "PRIMARY subjects", true, 120, retry(queue.Filter{Key: 1}), nil},
		{"retry by id", "PRIMARY", false, 120, retry(ids), nil},
		{"retry dead ones", "PRIMARY timers", false, 120, retry(queue.Filter{States: []queue.State{queue.Dead}}), nil},
		{"discard dead ones", "PRIMARY timers", false, 120, discard(queue.Filter{States: []queue.State{queue.Dead}}), nil},
		{"discard those of a subject", "PRIMARY subjects", true, 120, discard(queue.Filter{Key: 1}), nil},
		{"discard by id", "PRIMARY", false, 120, discard(ids), nil},
	}
}

// TestAnOpenTransactionHoldsUpNoOtherTasks: a site may keep a transaction open in
// which it enqueued. A statement about most of the tasks of a small table must not
// scan the table then: it would wait for the site.
func TestAnOpenTransactionHoldsUpNoOtherTasks(t *testing.T) {
	t.Parallel()
	const batch = 20
	db, err := mysql.Open(servertest.MySQLDSN(t) + "&innodb_lock_wait_timeout=1") // a transaction that waits fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
	var uploads []queue.New
	for i := range member.ID(batch) {
		uploads = append(uploads, tasks.NewUpload(1+i))
	}
	enqueue(t, q, uploads...)
	site := begin(t, db)
	if _, err := site.ExecContext(t.Context(), "INSERT INTO tasks (type, subject) VALUES ('upload', 98)"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueTx(t.Context(), site, tasks.NewUpload(99), tasks.NewUpload(batch)); err != nil {
		t.Fatal(err)
	}
	if _, err := site.ExecContext(t.Context(), "INSERT INTO task_keys (key_hash, batch_hash) VALUES ('1', '')"); err != nil {
		t.Fatal(err)
	}

	held := append(claim(t, q, batch), claim(t, q, batch)...)
	if len(held) != batch-1 { // but for the one that absorbed
		t.Fatalf("claimed %d tasks, want %d", len(held), batch-1)
	}
	if lost, err := q.Extend(t.Context(), held, time.Minute); err != nil || lost != 0 {
		t.Errorf("extend: lost %d, %v", lost, err)
	}
	enqueue(t, q, uploads[:batch-1]...)
	if n, err := q.Absorb(t.Context(), held); err != nil || n != len(held) {
		t.Errorf("absorbed %d, %v, want %d", n, err, len(held))
	}
	finish(t, q, errors.New("in vain"), held[:8]...)
	finish(t, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), nil, held[8:]...) // which keeps none
	exec(t, db, "UPDATE parked_tasks SET due_at = 1")
	exec(t, db, "INSERT INTO task_keys (key_hash, batch_hash, created_at) VALUES ('2', '', 1), ('3', '', 1)")
	if swept, err := q.Sweep(t.Context()); err != nil || swept != (queue.Swept{Due: 8}) {
		t.Errorf("swept %+v, %v", swept, err)
	}
	again := claim(t, q, 8)
	finish(t, q, queue.Permanent(errors.New("never")), again...)
	held = again
	if n, err := q.Retry(t.Context(), queue.Filter{States: []queue.State{queue.Dead}}, 4); err != nil || n != 4 {
		t.Errorf("retried %d, %v", n, err)
	}
	if n, err := q.Discard(t.Context(), queue.Filter{IDs: idsOf(held)}, batch); err != nil || n != 8 {
		t.Errorf("discarded %d, %v", n, err)
	}
}

// TestEnqueueInASerializableTransactionWaitsForNoOther: there each SELECT locks what it
// reads.
func TestEnqueueInASerializableTransactionWaitsForNoOther(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.MySQLDSN(t) + "&innodb_lock_wait_timeout=1") // a transaction that waits fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	fillQueue(t, db, 40)
	other := begin(t, db)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	if _, err := q.EnqueueTx(t.Context(), other, tasks.NewUpload(1), tasks.NewUpload(2)); err != nil {
		t.Fatal(err)
	}
	site, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = site.Rollback() })
	var uploads []queue.New
	for i := range member.ID(20) {
		uploads = append(uploads, tasks.NewUpload(1_000_000+i))
	}
	if _, err := q.EnqueueTx(t.Context(), site, uploads...); err != nil {
		t.Error(err)
	}
}

func idsOf(list []queue.Task) (ids []uint64) {
	for _, task := range list {
		ids = append(ids, task.ID)
	}
	return ids
}
