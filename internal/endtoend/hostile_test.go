package endtoend_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// TestAServerWithUnusualDefaults sets all defaults of session variables against activityd. On this server,
// schema and triggers are made. No read shows a photo that was hidden before the read began, or that was
// never committed. Tasks and sets are as elsewhere.
func TestAServerWithUnusualDefaults(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	dsn := servertest.HostileMySQL(t)
	g := groundOn(t, needFor(seed), dsn, servertest.Redis(t))
	must(t, schema.Apply(t.Context(), g.db))
	triggers := schema.StandardTriggers()
	must(t, triggers.Install(t.Context(), g.db))
	var ours int
	must(t, g.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()"+
		" AND sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION' AND character_set_client = 'utf8mb4'").Scan(&ours))
	if ours != len(triggers.List) {
		t.Errorf("%d of %d triggers keep the session of ours", ours, len(triggers.List))
	}

	g.checkPrivacy(t)
	g.clear(t)
	g.checkTimers(t)
	g.clear(t)
	g.checkTriggers(t)
}

// checkPrivacy races readers with two photos: the site makes the first private and public again, and makes
// the second public in transactions that it rolls back.
func (g *ground) checkPrivacy(t *testing.T) {
	t.Helper()
	h := hidings()["made private"]
	h.setUp(t, g)
	worker, race := g.started(t, "worker"), &race{}
	stop := race.read(t, g.readersBySource(t))
	race.run(t, g, h)
	must(t, h.hide(t.Context(), g.site))
	race.phase.Add(1)
	for range 4 {
		tx, err := g.db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), "UPDATE photos SET visibility = 'public' WHERE id = ?", pearl)
		must(t, err)
		race.awaitReads(t, &race.hidden)
		must(t, tx.Rollback())
	}
	stop()
	g.awaitIdle(t)
	worker.stop()
}

// checkTimers enqueues a task that runs later, a task that expires, and a task twice.
func (g *ground) checkTimers(t *testing.T) {
	t.Helper()
	later, expired := tasks.NewRefill(901), tasks.NewRefill(902)
	later.Delay, expired.Life = time.Second, time.Millisecond
	ids, err := g.queue.Enqueue(t.Context(), []queue.New{later, expired, tasks.NewUpload(903)})
	must(t, err)
	again, err := g.queue.Enqueue(t.Context(), []queue.New{tasks.NewUpload(903)})
	must(t, err)
	if len(ids) != 3 || !slices.Equal(again, ids[2:]) {
		t.Errorf("enqueued as %d, and again as %d", ids, again)
	}
	first, replayed, err := g.queue.EnqueueOnce(t.Context(), "key", []queue.New{tasks.NewRefill(904)})
	must(t, err)
	second, replayedThen, err := g.queue.EnqueueOnce(t.Context(), "key", []queue.New{tasks.NewRefill(904)})
	must(t, err)
	if !slices.Equal(first, second) || replayed || !replayedThen {
		t.Errorf("with a key: %d and %d, the second a replay: %v", first, second, replayedThen)
	}
	list, err := g.queue.List(t.Context(), queue.Filter{}, 100)
	must(t, err)
	if want := (queuetest.Counts{Waiting: 3, Scheduled: 1}); len(list) != 4 || g.count(t) != want {
		t.Errorf("%d tasks are listed, and counted are %+v, want %+v", len(list), g.count(t), want)
	}
	worker := g.started(t, "worker")
	g.awaitIdle(t)
	worker.stop()
}

// checkTriggers changes the site on a connection as the server makes them.
func (g *ground) checkTriggers(t *testing.T) {
	t.Helper()
	db, err := sql.Open("mysql", g.dsn)
	must(t, err)
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer func() { _ = conn.Close() }()
	execAll(t, conn,
		// Without these settings no site could work on the server.
		"SET SESSION TRANSACTION READ WRITE",
		"SET sql_big_selects = 1 /*!80013 , use_secondary_engine = OFF */",
		"INSERT INTO users (id) VALUES (1), (2), (3), (4), (5), (6)",
		"INSERT INTO contacts (user_id, contact_id) VALUES (1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 1)",
		"INSERT INTO photos (owner_id, date_upload, visibility) VALUES (1, 100, 'public'), (6, 600, 'public')",
		"COMMIT")
	worker := g.started(t, "worker")
	g.awaitIdle(t)
	if from := g.checkAnswers(t, worker.reader, []member.ID{1, 2, 3, 4, 5, 6}); from[recent.FromIndex] != 6 {
		t.Errorf("answers from %v", from)
	}
	execAll(t, conn, "DELETE FROM users WHERE id = 6", "COMMIT")
	g.awaitIdle(t)
	if sets := g.sets(t); len(sets) != 0 {
		t.Errorf("after the only contact of five members left, there are the sets %v, want none", sets)
	}
	worker.stop()
}

func execAll(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// clear removes all that the checks before left.
func (g *ground) clear(t *testing.T) {
	t.Helper()
	for _, table := range []string{"photos", "contacts", "blocks", "users", "tasks", "held_keys"} {
		g.exec(t, "DELETE FROM "+table)
	}
	g.flush(t)
}
