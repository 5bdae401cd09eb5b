package schema_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/schema"
)

// apart are the databases of a site and of its queue, on one server, each with its own
// tables.
func apart(t *testing.T) (site, queue *sql.DB) {
	t.Helper()
	site, queue = servertest.MySQL(t), servertest.MySQL(t)
	for db, part := range map[*sql.DB]schema.Part{site: schema.Queue, queue: schema.Site} {
		run(t, db, "DROP TABLE "+strings.Join(schema.Tables(part), ", "))
	}
	return site, queue
}

// tablesIn are the tables of a database, sorted.
func tablesIn(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return column(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY BINARY table_name")
}

func TestEachDatabaseHasItsOwnTables(t *testing.T) {
	t.Parallel()
	if got, want := schema.Tables(schema.Queue), []string{"tasks", "task_leases", "parked_tasks", "paused_queues", "task_keys"}; !slices.Equal(got, want) {
		t.Errorf("tables of the queue: %q, want %q", got, want)
	}
	if got := append(schema.Tables(schema.Queue), schema.Tables(schema.Site)...); len(got) != len(schema.Tables()) {
		t.Errorf("the parts are %q, all are %q", got, schema.Tables())
	}
	site, queue := apart(t)
	run(t, site, "DROP TABLE push_mutes")
	run(t, queue, "DROP TABLE task_keys")
	for part, db := range map[schema.Part]*sql.DB{schema.Site: site, schema.Queue: queue} {
		missing := map[schema.Part]string{schema.Site: "push_mutes", schema.Queue: "task_keys"}[part]
		if findings, err := schema.Check(t.Context(), db, part); err != nil || len(findings) != 1 || findings[0].Table != missing || !findings[0].Wrong {
			t.Errorf("%s: found %v, %v, want that %s is missing", part, findings, err, missing)
		}
		for range 2 {
			if err := schema.Apply(t.Context(), db, part); err != nil {
				t.Fatal(err)
			}
		}
		if diff := gocmp.Diff(slices.Sorted(slices.Values(schema.Tables(part))), tablesIn(t, db)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", part, diff)
		}
		if findings, err := schema.Check(t.Context(), db, part); err != nil || len(findings) > 0 {
			t.Errorf("%s: found %v, %v", part, findings, err)
		}
	}
}

// TestBothDatabasesAreMigrated: a step is taken where its table is, and recorded in both.
func TestBothDatabasesAreMigrated(t *testing.T) {
	t.Parallel()
	site, queue := apart(t)
	both := expanded.Next(present.Since(), "ALTER TABLE push_mutes ADD COLUMN note INT NULL, ALGORITHM=INSTANT")
	for part, db := range map[schema.Part]*sql.DB{schema.Site: site, schema.Queue: queue} {
		if err := present.Compatible(t.Context(), db); err != nil {
			t.Error(err)
		}
		if err := both.Compatible(t.Context(), db); err == nil || !strings.Contains(err.Error(), "run activityd schema --apply") {
			t.Errorf("%s: error %v, want that it is too old", part, err)
		}
		if err := both.ApplyTo(t.Context(), db, part); err != nil {
			t.Fatal(err)
		}
		table := map[schema.Part]string{schema.Site: "once_keys", schema.Queue: "tasks"}[part]
		if got := commentOf(t, db, table); got != recordOf(both) {
			t.Errorf("%s: records %q, want %q", part, got, recordOf(both))
		}
		if err := both.Compatible(t.Context(), db); err != nil {
			t.Error(err)
		}
	}
	for db, statement := range map[*sql.DB]string{queue: "SELECT trace FROM tasks", site: "SELECT note FROM push_mutes"} {
		column(t, db, statement)
	}
	if n := len(tablesIn(t, queue)) + len(tablesIn(t, site)); n != len(schema.Tables()) {
		t.Errorf("%d tables, want %d", n, len(schema.Tables()))
	}
}

func commentOf(t *testing.T, db *sql.DB, table string) string {
	t.Helper()
	return column(t, db, "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '"+table+"'")[0]
}

// TestAQueueMovesOut of a database that recorded its version with the tasks alone.
func TestAQueueMovesOut(t *testing.T) {
	t.Parallel()
	site, queue := servertest.MySQL(t), servertest.MySQL(t)
	run(t, site, "ALTER TABLE once_keys COMMENT = ''", "INSERT INTO tasks (id, type, subject) VALUES (5000, 'upload', 7)",
		"INSERT INTO push_events (id, task_id, actor_id, created_at, expires_at, forget_at) VALUES ('task-9000', 9000, 1, 2, 3, 4)")
	install(t, site)
	move := func() {
		t.Helper()
		if err := schema.Apply(t.Context(), site, schema.Site); err != nil {
			t.Fatal(err)
		}
		if err := schema.RaiseTaskIDs(t.Context(), site, queue); err != nil {
			t.Fatal(err)
		}
	}
	move()
	found := func(wants ...string) {
		t.Helper()
		findings, err := schema.Check(t.Context(), site, schema.Site)
		if err != nil || len(findings) != len(wants) {
			t.Fatalf("found %v, %v", findings, err)
		}
		for i, want := range wants {
			if got := fmt.Sprintf("%t %s", findings[i].Wrong, findings[i]); !strings.Contains(got, want) {
				t.Errorf("found %q, want %q", got, want)
			}
		}
	}
	found("false contacts has the trigger activityd_contacts_after_delete, whose tasks go to this database", "false tasks is the queue of processes without --queue-dsn")

	run(t, queue, "INSERT INTO tasks (type, subject) VALUES ('upload', 8)")
	if id := column(t, queue, "SELECT id FROM tasks")[0]; id != "1000000009001" {
		t.Errorf("the first task of the queue is %s, want one above those that the site's database knows, and may come to know", id)
	}
	run(t, site, "DROP TABLE tasks, paused_queues, task_keys")
	found("true contacts has the trigger activityd_contacts_after_delete") // each change fails
	if _, err := schema.InstallTriggers(t.Context(), site, queue); err != nil {
		t.Fatal(err)
	}
	found()
	if got := commentOf(t, site, "once_keys"); got != recordOf(present) {
		t.Errorf("records %q, want %q", got, recordOf(present))
	}
	move() // the ids rise no more
	run(t, queue, "INSERT INTO tasks (type, subject) VALUES ('upload', 9)")
	if ids := column(t, queue, "SELECT id FROM tasks ORDER BY id"); !slices.Equal(ids, []string{"1000000009001", "1000000009002"}) {
		t.Errorf("tasks %q", ids)
	}
}

// TestRaisedIDsSurviveACrash of a queue without a single row.
func TestRaisedIDsSurviveACrash(t *testing.T) {
	t.Parallel()
	site, server := servertest.MySQL(t), servertest.OwnMySQL(t)
	run(t, site, "DROP TABLE tasks",
		"INSERT INTO push_events (id, task_id, actor_id, created_at, expires_at, forget_at) VALUES ('task-9000', 9000, 1, 2, 3, 4)")
	queue := open(t, server.DSN(servertest.Database))
	if err := schema.RaiseTaskIDs(t.Context(), site, queue); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	queue = open(t, server.DSN(servertest.Database))
	run(t, queue, "INSERT INTO tasks (type, subject) VALUES ('upload', 8)")
	if id := column(t, queue, "SELECT id FROM tasks")[0]; id != "9001" {
		t.Errorf("task %s, want 9001", id)
	}
}

// TestAQueueThatLostTasksGivesNoIDTwice: a process that starts raises the ids above those of the
// newest events, and leaves them where they are above them.
func TestAQueueThatLostTasksGivesNoIDTwice(t *testing.T) {
	t.Parallel()
	site, queue := apart(t)
	keep := func(want string) {
		t.Helper()
		if err := schema.KeepTaskIDs(t.Context(), site, queue); err != nil {
			t.Fatal(err)
		}
		run(t, queue, "INSERT INTO tasks (type, subject) VALUES ('upload', 8)")
		if ids := column(t, queue, "SELECT id FROM tasks"); !slices.Equal(ids, []string{want}) {
			t.Errorf("tasks %q, want %s", ids, want)
		}
		run(t, queue, "DELETE FROM tasks")
	}
	keep("1") // no event
	run(t, site, "INSERT INTO push_events (id, task_id, actor_id, created_at, expires_at, forget_at) VALUES ('b', 70, 1, 2, 3, 4), ('a', 60, 1, 2, 3, 4)")
	keep("71")
	keep("72")
}

// TestTriggersReachTheQueueOnTheirServer: what they insert commits with the change, or goes
// with it.
func TestTriggersReachTheQueueOnTheirServer(t *testing.T) {
	t.Parallel()
	site, queue := apart(t)
	run(t, site, "INSERT INTO users (id, last_upload) VALUES (1, NULL), (2, 500)")
	if n, err := schema.InstallTriggers(t.Context(), site, queue); err != nil || n != ofOurs {
		t.Fatalf("%d triggers, %v", n, err)
	}
	undone(t, site, func(tx *sql.Tx) { run(t, tx, "INSERT INTO contacts (user_id, contact_id) VALUES (1, 2)") })
	if got := queued(t, queue); got != nil {
		t.Errorf("tasks of a change that was undone: %q", got)
	}
	run(t, site, "INSERT INTO contacts (user_id, contact_id) VALUES (1, 2)", "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (2, 'public', 900)", "DELETE FROM users WHERE id = 2")
	if diff := gocmp.Diff([]string{"add_contact 1 2", "refill 2", "remove_contact 1 2", "upload 2"}, queued(t, queue)); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
}

func TestTriggersAreRefusedForAQueueOnAnotherServer(t *testing.T) {
	t.Parallel()
	site, _ := apart(t)
	install(t, servertest.MySQL(t)) // they could be
	queue := open(t, servertest.OwnMySQL(t).DSN(servertest.Database))
	if _, err := schema.InstallTriggers(t.Context(), site, queue); err == nil || !strings.Contains(err.Error(), "the queue is on another server") {
		t.Errorf("error %v", err)
	}
	if all := installed(t, site); len(all) > 0 {
		t.Errorf("installed all the same: %q", all)
	}
}

func TestSameDatabase(t *testing.T) {
	t.Parallel()
	dsn, other := servertest.MySQLDSN(t), servertest.MySQL(t)
	server := servertest.OwnMySQL(t)
	name := column(t, open(t, dsn), "SELECT DATABASE()")[0]
	if err := server.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		db   *sql.DB
		same bool
	}{
		"another pool": {open(t, dsn), true}, "another database": {other, false}, "one of its name": {open(t, server.DSN(name)), false},
	} {
		if same, err := schema.SameDatabase(t.Context(), open(t, dsn), test.db); err != nil || same != test.same {
			t.Errorf("%s: same %t, %v", what, same, err)
		}
	}
}

// TestSameCluster: servers that are in no cluster are not in the same one.
func TestSameCluster(t *testing.T) {
	t.Parallel()
	const id, other, none = "2a7f3c1e-0000-11ee-8000-000000000001", "2a7f3c1e-0000-11ee-8000-000000000002", "00000000-0000-0000-0000-000000000000"
	for ids, same := range map[[2]string]bool{{id, id}: true, {id, other}: false, {id, ""}: false, {"", ""}: false, {none, none}: false} {
		if schema.SameCluster(ids[0], ids[1]) != same {
			t.Errorf("%q: want %t", ids, same)
		}
	}
}
