package queue_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// insertMany inserts n rows, each from an expression over the number i.
func insertMany(t *testing.T, db *sql.DB, n int, table, columns, values string) {
	t.Helper()
	exec(t, db, "INSERT INTO "+table+" ("+columns+") SELECT "+values+" FROM (WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 999)"+
		" SELECT 1000 * a.i + b.i + 1 AS i FROM s AS a, s AS b WHERE 1000 * a.i + b.i < "+strconv.Itoa(n)+") AS numbers")
}

// However many tasks expired at the head of a queue: a claim deletes them some at a time, and gets
// what is behind them.
func TestExpiredTasksStopNoQueue(t *testing.T) {
	t.Parallel()
	const expired = 20_000
	db, q := openDB(t)
	insertMany(t, db, expired, "tasks", "type, subject, expires_at", "'upload', i, 1")
	want := enqueue(t, q, tasks.NewUpload(1_000_001), tasks.NewUpload(1_000_002))
	list := claim(t, q, 256)
	if len(list) != 2 || list[0].ID != want[0] || list[1].ID != want[1] {
		t.Fatalf("claimed %+v, want %v", list, want)
	}
	counts(t, q, queuetest.Counts{Running: 2})
}

// column is what a producer may write into a column of tasks, if it has all
// rights: what the server takes of it.
type column struct {
	name   string
	values []any
}

// extremes are the ends of what the columns hold, nothing, and garbage. Next to
// that, anything is drawn from the keys that good tasks are about to have.
func extremes(keys []string) []column {
	const most64, half64 = "18446744073709551615", "9223372036854775808"
	stamps := []any{nil, 0, 1, half64, most64}
	dedupe := []any{nil, "", "~", "~1", strings.Repeat("k", 128), "\x00"}
	for i := range 3000 { // of tasks that are not there yet
		dedupe = append(dedupe, "~"+strconv.Itoa(i))
	}
	for range 20 {
		dedupe = append(dedupe, mysql.Args(keys)...)
	}
	return []column{
		{"id", []any{0}},
		{"queue", []any{"default", "fan_out", "refill", "nowhere", "", "DEFAULT", "default ", "défault", strings.Repeat("ü", 32), "😀", "\xff\xfe", "\x00"}},
		{"type", []any{"upload", "add_contact", "remove_contact", "fan_out", "refill", "UPLOAD", "upload ", "", strings.Repeat("x", 32), "'; DROP", "😀", "\xff"}},
		{"subject", []any{0, 1, half64, most64, -1, nil}},
		{"args", []any{
			"{}", "null", "[]", "5", `"x"`, "", "{", nil, "\xff", `{"contact_id": null}`, `{"contact_id": -1}`, `{"contact_id": "0"}`, `{"contact_id": 1.5}`,
			`{"contact_id": "99999999999999999999"}`, `{"contact_id": {"a": []}}`, `{"contact_id": "1", "contact_id": "2"}`, `{"contact_id": "` + most64 + `"}`,
			`{"after": "` + most64 + `", "since": 9223372036854775807, "updated": 9223372036854775807}`, `{"since": -9223372036854775808, "updated": -5}`,
			`{"a": 1.}`, `"\x41"`, `{"a": -}`, `{"a": "` + "\n" + `"}`, `{"a": "\ud800"}`, strings.Repeat("[", 99) + strings.Repeat("]", 99), strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
			`{"contact_id": "1", "a": "` + strings.Repeat("x", 4100) + `"}`, `{"a": "` + strings.Repeat("😀", 1<<18) + `"}`, strings.Repeat("1", 5000),
		}},
		{"priority", []any{-32768, -1, 1, 32767, -40000, 40000}},
		{"attempts", []any{0, 1, 24, 25, 65534, 65535, 70000, -1}},
		{"max_attempts", []any{0, 1, 65535}},
		{"expires_at", stamps},
		{"due_at", stamps},
		{"created_at", stamps},
		{"dedupe_key", dedupe},
		{"lost", []any{nil, 0, 1, -128, 127}},
		{"last_error", []any{"", strings.Repeat("😀", 2000)}},
	}
}

// setOurMode makes a session that was changed one of activityd's again.
const setOurMode = "SET sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"

// forge inserts rows: each value of each column in each queue, and as many again
// with several columns, and returns how many the server took.
func forge(t *testing.T, db *sql.DB, random *rand.Rand, columns []column) (inserted int) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	insert := func(row map[string]any) {
		names := slices.Sorted(maps.Keys(row))
		var values []any
		for _, name := range names {
			values = append(values, row[name])
		}
		_, err := conn.ExecContext(t.Context(), "INSERT INTO tasks ("+strings.Join(names, ", ")+") VALUES ("+
			strings.TrimSuffix(strings.Repeat("?,", len(values)), ",")+")", values...)
		if err == nil { // what the server refuses, no producer can insert
			inserted++
		}
	}
	some := func(c column) any { return c.values[random.IntN(len(c.values))] }
	for _, mode := range []string{"STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO"} { // the second is not strict
		if _, err := conn.ExecContext(t.Context(), "SET sql_mode = ?", mode); err != nil {
			t.Fatal(err)
		}
		for _, queueName := range []string{"default", "fan_out", "refill"} {
			for _, c := range columns {
				values := c.values
				if c.name == "dedupe_key" {
					values = nil
					for range 100 {
						values = append(values, some(c))
					}
				}
				for _, v := range values {
					row := map[string]any{"queue": queueName, "type": "upload", "subject": 1 + random.IntN(50)}
					if c.name == "id" || c.name == "args" {
						row["type"] = "neither" // so that it dies, and is listed and discarded
					}
					row[c.name] = v
					insert(row)
				}
			}
		}
		for range 400 {
			row := map[string]any{"type": "upload", "subject": 1 + random.IntN(50)}
			for range 1 + random.IntN(6) {
				if c := columns[1+random.IntN(len(columns)-1)]; c.name != "id" {
					row[c.name] = some(c)
				}
			}
			insert(row)
		}
	}
	if _, err := conn.ExecContext(t.Context(), setOurMode); err != nil {
		t.Fatal(err)
	}
	return inserted
}

// recorded counts the tasks that a handler is done with.
type recorded struct {
	queue.Handler
	mu   *sync.Mutex
	done map[uint64]bool
}

func (n *recorded) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	all := n.Handler.Handle(ctx, batch)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, t := range batch {
		n.done[t.ID] = all[i].Err == nil
	}
	return all
}

// goodTasks are about members that no forged row is about.
func goodTasks() (list []queue.New) {
	for i := range 40 {
		m := id(1000 + i)
		list = append(list, tasks.NewUpload(m), tasks.NewAddContact(m, m+1), tasks.NewRemoveContact(m, m+2), tasks.NewFanOut(m, 0), tasks.NewRefill(m))
	}
	return list
}

// Whatever a producer writes into the table: each good task is done, enqueuing
// works, by the API and by SQL, and so do the sweep and all that an operator asks.
// What makes no sense is done or dead with a reason in the end.
func TestNoRowStopsAQueue(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("ACTIVITYD_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("ACTIVITYD_SEED=%d repeats it", seed)
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	notifier := &notify.Notifier{}
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test", Notifier: notifier})
	insertMany(t, db, 1100, "users", "id, last_upload", "i, i")
	good := goodTasks()
	var keys []string
	for _, n := range good {
		keys = append(keys, n.DedupeKey)
	}
	inserted := forge(t, db, rand.New(rand.NewPCG(seed, 0)), extremes(keys))

	wanted := make(map[uint64]queue.New)
	for half := range slices.Chunk(good, len(good)/2) {
		for i, taskID := range enqueue(t, q, half...) {
			wanted[taskID] = half[i]
		}
	}
	exec(t, db, "INSERT INTO tasks (id, type, subject) VALUES (?, 'upload', 1)", uint64(1<<63))
	ids, _, err := q.EnqueueOnce(t.Context(), "key", good)
	if err != nil {
		t.Fatal(err)
	}
	for i, taskID := range ids {
		if wanted[taskID].DedupeKey != good[i].DedupeKey {
			t.Errorf("%+v was not absorbed by the one that waits, but got id %d", good[i], taskID)
		}
	}
	for i := range 20 {
		res, err := db.ExecContext(t.Context(), "INSERT INTO tasks (type, subject, args) VALUES ('add_contact', ?, JSON_OBJECT('contact_id', '5'))", 2000+i)
		if err != nil {
			t.Fatal(err)
		}
		taskID, _ := res.LastInsertId()
		wanted[uint64(taskID)] = tasks.NewAddContact(id(2000+i), 5)
	}
	if len(wanted) != len(good)+20 {
		t.Fatalf("%d tasks were enqueued, want %d", len(wanted), len(good)+20)
	}
	forged := looks(t, q)

	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done := make(map[uint64]bool)
	handlers := tasks.Handlers(index.New(client, index.Options{Settings: settings}), contacts.NewMySQL(db), q, tasks.HandlerOptions{})
	for typ, h := range handlers {
		handlers[typ] = &recorded{h, &mu, done}
	}
	log := &logged{}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		pool := queue.NewPool(q, handlers, queue.PoolOptions{Log: slog.New(slog.NewTextHandler(log, nil)), Notifier: notifier, Kinds: tasks.Kinds(), Workers: tasks.DefaultWorkers(), Poll: 20 * time.Millisecond, Sweep: 20 * time.Millisecond})
		if err := pool.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "all is done or dead", func() bool { return openRows(t, db) == 0 })
	stop()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	for taskID, n := range wanted {
		if !done[taskID] {
			t.Errorf("task %d was not done: %+v", taskID, n)
		}
	}
	if out := log.String(); strings.Contains(out, "claim failed") || strings.Contains(out, "sweep failed") || strings.Contains(out, "results of tasks not recorded") {
		t.Errorf("claims, sweeps or results failed:\n%.3000s", out)
	}
	dead := looks(t, q)
	if len(dead) == 0 || inserted < 500 {
		t.Errorf("%d rows were inserted, %d of them are dead", inserted, len(dead))
	}
	for _, r := range dead {
		wasDead := slices.ContainsFunc(forged, func(f queue.Record) bool { return f.ID == r.ID })
		if r.LastError == "" && !wasDead {
			t.Errorf("dead without a reason: %+v", r)
		}
	}
	for n := 1; n > 0; {
		if n, err = q.Discard(t.Context(), queue.Filter{}, 500); err != nil {
			t.Fatal(err)
		}
	}
	counts(t, q, queuetest.Counts{})
	var left int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// openRows counts what is to come to an end by itself: all but what is scheduled
// for a far time, and what waits where no worker looks.
func openRows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	const near = " queue IN ('default', 'fan_out', 'refill') AND (due_at IS NULL OR due_at < 1000 * UNIX_TIMESTAMP() + 3600000)"
	err := db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks WHERE"+near+") + (SELECT COUNT(*) FROM task_leases)"+
		" + (SELECT COUNT(*) FROM parked_tasks WHERE state = 'scheduled' AND"+near+")").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// looks asks everything that an operator may ask, and returns the dead tasks.
func looks(t *testing.T, q queuetest.Queue) (dead []queue.Record) {
	t.Helper()
	if _, err := q.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := q.Pending(t.Context(), []string{tasks.Upload}, []uint64{0, 1, 1<<64 - 1}); err != nil {
		t.Error(err)
	}
	for after, more := uint64(0), true; more; {
		page, err := q.List(t.Context(), queue.Filter{After: after}, 500)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			if after = r.ID; r.State == queue.Dead {
				dead = append(dead, r)
			}
			if !json.Valid(r.Payload) || len(r.Payload) > queue.MaxPayload+2 || r.Created.Year() > 9999 {
				t.Errorf("listed with %d bytes of arguments, created %v: %.200s", len(r.Payload), r.Created, r.Payload)
			}
		}
		more = len(page) == 500
	}
	return dead
}

// A trigger or a constraint of the site's may refuse what the queue does to one row. That row is
// buried, with the reason, or, where it cannot be, stays where it is, and the others go on.
func TestARowThatCannotBeMovedStopsNoOther(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	refuse := func(when, condition string) {
		exec(t, db, "CREATE TRIGGER refuse_"+strings.ReplaceAll(when, " ", "_")+" BEFORE "+when+" FOR EACH ROW IF "+condition+
			" THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
	}
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(13), tasks.NewUpload(2), tasks.NewUpload(14), tasks.NewUpload(15), tasks.NewUpload(16))
	refuse("DELETE ON tasks", "OLD.subject = 13")
	refuse("INSERT ON tasks", "NEW.subject = 16")
	refuse("INSERT ON parked_tasks", "NEW.subject = 14 AND NEW.state = 'scheduled' OR NEW.subject = 15")
	for range 2 { // one by one: what cannot be deleted is passed over, and not in the way
		list := claim(t, q, 1)
		if len(list) != 1 || list[0].Key == 13 {
			t.Fatalf("claimed %+v", list)
		}
		finishAll(t, q, list)
	}
	finishAll(t, q, claim(t, q, 10))
	states := make(map[uint64]queue.State)
	list, err := q.List(t.Context(), queue.Filter{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		states[r.Key] = r.State
		if r.State == queue.Dead && !strings.Contains(r.LastError, "not this one") {
			t.Errorf("%+v, want it dead with the reason", r)
		}
	}
	want := map[uint64]queue.State{13: queue.Waiting, 14: queue.Dead, 15: queue.Running, 16: queue.Dead}
	if !maps.Equal(states, want) {
		t.Errorf("left are %v, want %v", states, want)
	}
	exec(t, db, "UPDATE task_leases SET ends_at = 1") // what stays in its lease comes back when that ends
	exec(t, db, "UPDATE parked_tasks SET due_at = 1, state = 'scheduled' WHERE subject = 14")
	sweep(t, q)
	if list := claim(t, q, 10); !slices.Equal(subjectsOf(list), []uint64{14, 15}) {
		t.Errorf("claimed %+v", list)
	}
}

// finishAll finishes tasks: those about 14 and 15 are tried again, and 16 is handed back.
func finishAll(t *testing.T, q *queue.Queue, list []queue.Task) {
	t.Helper()
	var results []queue.Result
	for _, task := range list {
		r := queue.Result{Task: task}
		switch task.Key {
		case 14, 15:
			r.Err = queue.Later(time.Hour, context.DeadlineExceeded)
		case 16:
			r.Err = queue.Later(0, context.DeadlineExceeded)
		}
		results = append(results, r)
	}
	if lost, err := q.Finish(t.Context(), results); err != nil && !mysql.IsRowRefused(err) || lost != 0 {
		t.Fatalf("lost %d, %v", lost, err)
	}
}

func subjectsOf(list []queue.Task) (out []uint64) {
	for _, t := range list {
		out = append(out, t.Key)
	}
	slices.Sort(out)
	return out
}

// Each of these rows has the dedupe key of the member's next task, and would keep
// it from ever being done if it absorbed that.
func TestForgedRowsAbsorbNothing(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	far := "99999999999999"
	for name, values := range map[string]string{
		"where no worker is":    "'upload', 7, '{}', 'nowhere', NULL, 0, NULL, 'upload:7'",
		"about another":         "'upload', 8, '{}', 'default', NULL, 0, NULL, 'upload:7'",
		"of another type":       "'refill', 7, '{}', 'default', NULL, 0, NULL, 'upload:7'",
		"of no type":            "'UPLOAD', 7, '{}', 'default', NULL, 0, NULL, 'upload:7'",
		"with wrong arguments":  "'upload', 7, '[]', 'default', NULL, 0, NULL, 'upload:7'",
		"that dies at once":     "'upload', 7, '{}', 'default', NULL, 65535, NULL, 'upload:7'",
		"that always expired":   "'upload', 7, '{}', 'default', 0, 0, 0, 'upload:7'",
		"scheduled for never":   "'upload', 7, '{}', 'default', " + far + ", 0, NULL, 'upload:7'",
		"of nothing, and blank": "'', 0, '{}', '', NULL, 0, NULL, 'upload:7 '",
		"a blank in its key":    "'upload', 7, '{}', 'default', NULL, 0, NULL, 'upload:7 '",
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, "TRUNCATE TABLE tasks")
			exec(t, db, "TRUNCATE TABLE task_leases")
			exec(t, db, "TRUNCATE TABLE parked_tasks")
			exec(t, db, "INSERT INTO tasks (type, subject, args, queue, due_at, attempts, expires_at, dedupe_key) VALUES ("+values+")")
			ids := enqueue(t, q, tasks.NewUpload(7))
			sweep(t, q)
			list := slices.Concat(claim(t, q, 10), claim(t, q, 10)) // one that was lost goes alone
			if !slices.ContainsFunc(list, func(task queue.Task) bool {
				return task.ID == ids[0] && task.Kind == tasks.Upload && task.Key == 7
			}) {
				t.Errorf("claimed %+v, want %d among them", list, ids[0])
			}
		})
	}
}

// A lease for longer than any is freed; a task that is scheduled for no time is due.
func TestTheSweepMendsTimesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1))
	claim(t, q, 1)
	exec(t, db, "UPDATE task_leases SET ends_at = 18446744073709551615")
	exec(t, db, `INSERT INTO parked_tasks (id, state, queue, type, subject, args, priority, attempts, max_attempts, created_at)
		VALUES (11, 'scheduled', 'default', 'upload', 2, '{}', 0, 0, 25, 0)`)
	if s, err := q.Sweep(t.Context()); err != nil || s != (queue.Swept{TookOver: 1, Due: 1}) {
		t.Fatalf("swept %+v, %v", s, err)
	}
	counts(t, q, queuetest.Counts{Waiting: 2})
}

// An error may quote anything. What MySQL would not store is replaced.
func TestAnErrorOfAnyBytesIsKept(t *testing.T) {
	t.Parallel()
	_, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(7))
	finish(t, q, errors.New("no \xff\xfe such thing"), claim(t, q, 1)...)
	list, err := q.List(t.Context(), queue.Filter{}, 10)
	if err != nil || len(list) != 1 || list[0].State != queue.Scheduled || list[0].LastError != "no \uFFFD such thing" {
		t.Errorf("%+v, %v", list, err)
	}
}

// Only parts of a fan-out that this package enqueued hold up the member's uploads.
func TestForgedPartsHoldUpNoUpload(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, `INSERT INTO tasks (type, subject, queue, due_at, priority) VALUES
		('fan_out', 1, 'nowhere', NULL, 0), ('fan_out', 2, 'default', NULL, 0), ('fan_out', 3, 'fan_out', NULL, 1),
		('fan_out', 4, 'fan_out', 99999999999999, 0)`)
	enqueue(t, q, tasks.NewFanOut(7, 0), tasks.NewFanOut(8, 0))
	claimFor(t, q, tasks.QueueFanOut, 1, time.Minute)
	busy, err := q.Active(t.Context(), tasks.FanOut, []uint64{1, 2, 3, 4, 7, 8})
	if want := (map[uint64]bool{7: true, 8: true}); err != nil || !maps.Equal(busy, want) {
		t.Errorf("fanning out are %v, %v, want %v", busy, err, want)
	}
}

// What a claim reads is bounded by the number of its tasks.
func TestLargeArgumentsAreNotRead(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	for range 3 {
		exec(t, db, "INSERT INTO tasks (type, subject, args) VALUES ('add_contact', 7, JSON_OBJECT('contact_id', '8', 'junk', REPEAT('x', 10000000)))")
	}
	exec(t, db, "INSERT INTO tasks (type, subject, args) VALUES ('add_contact', 7, JSON_OBJECT('contact_id', '8', 'junk', REPEAT('x', 32000)))")
	list := claim(t, q, 10)
	for i, task := range list {
		args, err := tasks.ArgsOf[tasks.ContactArgs](task)
		if large := i < 3; len(task.Payload) > queue.MaxPayload || large != (err != nil) || large != (args.Contact == 0) {
			t.Errorf("task %d has %d bytes: %+v, %v", i, len(task.Payload), args, err)
		}
		if i < 3 && !strings.Contains(err.Error(), "bytes: at most 32768 are read") {
			t.Errorf("the reason is %v", err)
		}
	}
	records, err := q.List(t.Context(), queue.Filter{}, 10)
	if err != nil || len(list) != 4 || len(records) != 4 {
		t.Fatalf("claimed %d, listed %d, %v", len(list), len(records), err)
	}
	if shown := string(records[0].Payload); shown != `"more bytes: at most 32768 are read"` {
		t.Errorf("listed with %.100s", shown)
	}
}

// However many queues rows name, the statistics ask about some, and about those
// that have workers.
func TestNamesOfQueuesDoNotEndTheStatistics(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Queues: []string{"zebra"}})
	insertMany(t, db, 20_000, "tasks", "type, subject, queue", "CONCAT('type', i), i, CONCAT('a', i)")
	insertMany(t, db, 5000, "tasks", "type, subject, queue, priority", "'upload', i, 'default', i")
	insertMany(t, db, 1000, "tasks", "type, subject, queue", "CONCAT('type', i), i, 'refill'")
	exec(t, db, "INSERT INTO tasks (type, subject, queue) VALUES ('upload', 1, 'zebra'), ('upload', 1, 'ZEBRA'), ('UPLOAD', 1, 'fan_out')")
	if _, err := q.Pause(t.Context(), "yak"); err != nil {
		t.Fatal(err)
	}
	before := questions(t, db)
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asked := questions(t, db) - before; asked > 150 {
		t.Errorf("the statistics took %d statements", asked)
	}
	byQueue := make(map[string]int)
	for _, c := range s.Tasks {
		byQueue[c.Queue] += c.Count
	}
	if !s.More || len(s.Queues) != 5+32 || len(s.Tasks) != 4+32 || byQueue["default"] != 5000 || byQueue["zebra"] != 2 || byQueue["fan_out"] != 1 {
		t.Errorf("%d queues, %d counts, more: %v: %v", len(s.Queues), len(s.Tasks), s.More, byQueue)
	}
}

// questions is how many statements the server was sent on the connection.
func questions(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	db.SetMaxOpenConns(1)
	var name string
	if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Of too many idempotency keys the oldest are forgotten, as fast as sweeps go.
func TestTheNewestKeysAreRemembered(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	const most, old, newest = 25_600, 80_000, 100
	insertMany(t, db, old, "task_keys", "key_hash, batch_hash, created_at", "UNHEX(SHA2(i, 256)), UNHEX(SHA2(i, 256)), 1000 * UNIX_TIMESTAMP() - 3600000 + i")
	var first []uint64
	for i := range newest {
		ids, _, err := q.EnqueueOnce(t.Context(), fmt.Sprint("key ", i), []queue.New{tasks.NewUpload(id(i + 1))})
		if err != nil {
			t.Fatal(err)
		}
		first = append(first, ids...)
	}
	sweep(t, q) // not looked yet how many there are
	q.SetMaxKeys(most)
	sweeps := 1
	for more := true; more; sweeps++ {
		s, err := q.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		more = s.More
	}
	var left int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM task_keys").Scan(&left); err != nil || left < most*8/10 || left > most*12/10 || sweeps > old/1000+2 {
		t.Errorf("%d keys are left after %d sweeps, %v, want about %d", left, sweeps, err, most)
	}
	for i, taskID := range first {
		if ids, replayed, err := q.EnqueueOnce(t.Context(), fmt.Sprint("key ", i), []queue.New{tasks.NewUpload(id(i + 1))}); err != nil || !replayed || ids[0] != taskID {
			t.Fatalf("key %d: %v, %v, %v", i, ids, replayed, err)
		}
	}
}
