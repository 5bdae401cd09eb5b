package schema_test

import (
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// The releases of these tests: the one that is tested, one with a
// migration that its processes can bear, and one with a migration that only the third can.
var (
	present  = schema.ThisProgram()
	expanded = present.Next(present.Since(), "ALTER TABLE tasks ADD COLUMN trace VARCHAR(64) NULL, ADD KEY traces (trace), ALGORITHM=INPLACE, LOCK=NONE")
	shrunk   = expanded.Next(expanded.Version(), "ALTER TABLE tasks DROP KEY traces, ALGORITHM=INPLACE, LOCK=NONE")
)

// described is what activityd's own tables are like, with the version.
func described(t *testing.T, db *sql.DB) []string {
	t.Helper()
	ours := " WHERE table_schema = DATABASE() AND table_name IN ('" + strings.Join(schema.Tables()[4:], "', '") + "') ORDER BY 1"
	return slices.Concat(
		column(t, db, "SELECT CONCAT_WS(' ', table_name, engine, table_collation, table_comment) FROM information_schema.tables"+ours),
		column(t, db, "SELECT CONCAT_WS(' ', table_name, column_name, column_type, collation_name, is_nullable, column_default, extra, column_comment) FROM information_schema.columns"+ours),
		column(t, db, "SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique) FROM information_schema.statistics"+ours))
}

// versionOf returns what the database records about its version.
func versionOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	return column(t, db, "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'tasks'")[0]
}

func recordOf(p schema.Program) string {
	return fmt.Sprintf("activityd schema %d, compatible since %d", p.Version(), p.Since())
}

//go:embed v3_test.sql
var tasksOfVersion3 string

// version4 is a database of before a new platform needed no change of the tables.
func version4(t *testing.T) *sql.DB {
	t.Helper()
	db := servertest.MySQL(t)
	run(t, db, "ALTER TABLE push_devices MODIFY platform ENUM('apns','webpush','fcm') NOT NULL, DROP COLUMN language", "DROP TABLE push_runs",
		"ALTER TABLE tasks COMMENT = 'activityd schema 4, compatible since 4'")
	return db
}

// version3 is a database of before tasks had tables by what becomes of them.
func version3(t *testing.T) *sql.DB {
	t.Helper()
	db := version4(t)
	run(t, db, "DROP TABLE tasks, task_leases, parked_tasks", tasksOfVersion3)
	return db
}

func apply(t *testing.T, db *sql.DB, programs ...schema.Program) {
	t.Helper()
	for _, p := range programs {
		if err := p.Apply(t.Context(), db, false); err != nil {
			t.Fatalf("to version %d: %v", p.Version(), err)
		}
	}
}

// TestMigrationsLeadToSchemaSQL: a database of each version becomes what schema.sql
// makes, in which the new tables are those that it makes first.
func TestMigrationsLeadToSchemaSQL(t *testing.T) {
	t.Parallel()
	fresh := servertest.MySQL(t)
	if got := versionOf(t, fresh); got != recordOf(present) {
		t.Errorf("schema.sql records %q, want %q", got, recordOf(present))
	}
	old := version3(t)
	if err := schema.ApplyOffline(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(described(t, fresh), described(t, old)); diff != "" {
		t.Errorf("(-schema.sql +migrated):\n%s", diff)
	}
}

// online matches the statements of which the site's inserts notice nothing: it has none into the tables
// of push, which may be copied.
var online = regexp.MustCompile(`^(DO 0|ALTER TABLE (tasks|task_keys|paused_queues|once_keys|push_\w+) .*, ALGORITHM=(INSTANT|INPLACE, LOCK=NONE)` +
	`|ALTER TABLE push_\w+ .*, ALGORITHM=COPY, LOCK=SHARED)$`)

func TestMigrationsAreOnline(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]bool{
		"ALTER TABLE tasks DROP KEY traces":                            false,
		"ALTER TABLE tasks DROP KEY traces, ALGORITHM=INPLACE":         false,
		"ALTER TABLE tasks MODIFY id INT, ALGORITHM=COPY, LOCK=SHARED": false,
		"ALTER TABLE photos DROP KEY newest, ALGORITHM=INSTANT":        false,
		"ALTER TABLE push_devices DROP KEY gone, ALGORITHM=COPY":       false,
		"DO 0": true,
		"ALTER TABLE tasks ADD COLUMN note INT NULL, ALGORITHM=INSTANT":                   true,
		"ALTER TABLE task_keys DROP KEY created, ALGORITHM=INPLACE, LOCK=NONE":            true,
		"ALTER TABLE tasks DROP KEY traces, ADD KEY x (id), ALGORITHM=INPLACE, LOCK=NONE": true,
		"ALTER TABLE push_devices MODIFY id INT, ALGORITHM=COPY, LOCK=SHARED":             true,
	} {
		if online.MatchString(statement) != want {
			t.Errorf("%s: online %t, want %t", statement, !want, want)
		}
	}
	for _, statement := range schema.Migrations() {
		if !online.MatchString(statement) {
			t.Errorf("not online: %s", statement)
		}
	}
}

// TestEachReleaseAcceptsTheSchemaOfTheNext: what --check and the start of a process
// say about the tables of other releases.
func TestEachReleaseAcceptsTheSchemaOfTheNext(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	tooOld := fmt.Sprintf("this activityd needs version %d: run activityd schema --apply", expanded.Version())
	for _, step := range []struct {
		to   schema.Program
		says map[*schema.Program]string
	}{
		{present, map[*schema.Program]string{&present: "", &expanded: tooOld, &shrunk: "run activityd schema --apply"}},
		{expanded, map[*schema.Program]string{&present: "", &expanded: "", &shrunk: "run activityd schema --apply"}},
		{shrunk, map[*schema.Program]string{&present: "this activityd is older than the schema: run a newer one", &expanded: "", &shrunk: ""}},
	} {
		apply(t, db, step.to)
		if got := versionOf(t, db); got != recordOf(step.to) {
			t.Errorf("records %q, want %q", got, recordOf(step.to))
		}
		for p, want := range step.says {
			findings, err := p.Check(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			if said := fmt.Sprint(findings); len(findings) > 1 || (len(findings) == 0) != (want == "") || !strings.Contains(said, want) {
				t.Errorf("a program of version %d on %s: %s, want %q", p.Version(), versionOf(t, db), said, want)
			}
			compatible := p.Compatible(t.Context(), db)
			if (compatible == nil) != (want == "") || compatible != nil && !strings.Contains(compatible.Error(), want) {
				t.Errorf("a program of version %d on %s: %v, want %q", p.Version(), versionOf(t, db), compatible, want)
			}
		}
	}
	before := described(t, db)
	if err := expanded.Apply(t.Context(), db, false); err != nil {
		t.Errorf("the release before applies its own: %v", err)
	}
	if err := present.Apply(t.Context(), db, true); err == nil || !strings.Contains(err.Error(), "older than the schema") {
		t.Errorf("an older release applies its own: %v", err)
	}
	if diff := gocmp.Diff(before, described(t, db)); diff != "" {
		t.Errorf("changed by older releases (-before +after):\n%s", diff)
	}
}

// TestASkippedVersionIsRefused: the processes of the version that is there could not
// bear the second step.
func TestASkippedVersionIsRefused(t *testing.T) {
	t.Parallel()
	db, steps := servertest.MySQL(t), servertest.MySQL(t)
	before := described(t, db)
	want := fmt.Sprintf("version %d shuts out activityd of before version %d", shrunk.Version(), expanded.Version())
	if err := shrunk.Apply(t.Context(), db, false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if diff := gocmp.Diff(before, described(t, db)); diff != "" {
		t.Errorf("changed all the same (-before +after):\n%s", diff)
	}
	if err := shrunk.Apply(t.Context(), db, true); err != nil {
		t.Errorf("offline: %v", err)
	}
	apply(t, steps, expanded, shrunk)
	if diff := gocmp.Diff(described(t, steps), described(t, db)); diff != "" {
		t.Errorf("(-step by step +offline):\n%s", diff)
	}
}

// TestACrashBetweenStepsIsContinued: whichever of the statements was the last.
func TestACrashBetweenStepsIsContinued(t *testing.T) {
	t.Parallel()
	statements := shrunk.Statements()
	want := servertest.MySQL(t)
	apply(t, want, expanded, shrunk)
	for done := range len(statements) + 1 {
		db := servertest.MySQL(t)
		run(t, db, statements[:done]...)
		if err := shrunk.Apply(t.Context(), db, true); err != nil {
			t.Errorf("after %q: %v", statements[:done], err)
		}
		if diff := gocmp.Diff(described(t, want), described(t, db)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", statements[:done], diff)
		}
	}
}

// TestHostsApplyAtOnce: each step is taken once.
func TestHostsApplyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	run(t, db, "CREATE TABLE taken (step INT)")
	host := present.Next(present.Since(), "INSERT INTO taken VALUES (1)").Next(present.Since(), "INSERT INTO taken VALUES (2)")
	var hosts errgroup.Group
	for range 6 {
		own := open(t, dsn)
		hosts.Go(func() error { return host.Apply(t.Context(), own, false) })
	}
	if err := hosts.Wait(); err != nil {
		t.Error(err)
	}
	if got := column(t, db, "SELECT step FROM taken ORDER BY step"); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("taken: %q, want each step once", got)
	}
	if got := versionOf(t, db); got != recordOf(host) {
		t.Errorf("records %q, want %q", got, recordOf(host))
	}
}

// TestVersion3IsMigrated: each task is where it belongs, also what the site inserts meanwhile, and
// whichever of the steps was the last before a crash.
func TestVersion3IsMigrated(t *testing.T) {
	t.Parallel()
	for _, crash := range []string{"", "before", "after the rows", "before the record"} {
		t.Run("crash "+crash, func(t *testing.T) {
			t.Parallel()
			db := version3(t)
			want := fmt.Sprintf("tasks is of schema version 3: this activityd needs version %d: run activityd schema --apply", present.Version())
			if findings := check(t, db); len(findings) != 1 || !findings[0].Wrong || findings[0].String() != want {
				t.Errorf("found %v, want that %s", findings, want)
			}
			if err := schema.Apply(t.Context(), db); err == nil || !strings.Contains(err.Error(), "--offline") {
				t.Errorf("error %v, want that it shuts out processes", err)
			}
			run(t, db, `INSERT INTO tasks (id, type, subject, state, expires_at, due_at, dedupe_key, lease_owner, last_error, attempts) VALUES
				(1, 'upload', 1, 'waiting', NULL, NULL, 'upload:1', NULL, NULL, 0), (2, 'upload', 2, 'waiting', 99999999999999, 99999999999999, NULL, NULL, NULL, 0),
				(3, 'upload', 3, 'scheduled', NULL, 99999999999999, 'upload:3', NULL, NULL, 0), (4, 'upload', 4, 'scheduled', NULL, 99999999999999, '~4/x', NULL, 'away', 1),
				(5, 'upload', 5, 'dead', NULL, NULL, '~5/x', NULL, 'no', 1), (6, 'upload', 6, 'done', NULL, 99999999999999, NULL, NULL, NULL, 1),
				(7, 'upload', 7, 'running', NULL, 99999999999999, '~7/x', 'w/1', NULL, 1)`)
			if err := schema.ApplyOffline(t.Context(), db); err == nil || !strings.Contains(err.Error(), "1 tasks run under leases") {
				t.Errorf("error %v, want that a task runs", err)
			}
			run(t, db, "UPDATE tasks SET due_at = 1 WHERE id = 7")
			step := schema.Migrations()[0]
			switch crash {
			case "before":
				run(t, db, schema.TableStatements(activityd.Schema)...)
			case "after the rows", "before the record":
				if err := schema.ParkTasks(t.Context(), db); err != nil {
					t.Fatal(err)
				}
				run(t, db, "INSERT INTO tasks (id, type, subject, expires_at) VALUES (8, 'upload', 8, 99999999999999)") // the site's
			}
			if crash == "before the record" {
				run(t, db, step)
			}
			if err := schema.ApplyOffline(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if findings := check(t, db); len(findings) > 0 {
				t.Errorf("after the migration: %v", findings)
			}
			got := column(t, db, "SELECT CONCAT_WS(' ', id, 'waits', COALESCE(due_at, '-'), COALESCE(dedupe_key, '-')) FROM tasks WHERE id < 8 UNION ALL"+
				" SELECT CONCAT_WS(' ', id, state, COALESCE(due_at, '-'), COALESCE(dedupe_key, '-')) FROM parked_tasks ORDER BY 1")
			if want := []string{
				"1 waits - upload:1", "2 waits - -", "3 scheduled 99999999999999 upload:3", "4 scheduled 99999999999999 -", "5 dead - -", "6 done 99999999999999 -", "7 waits - -",
			}; !slices.Equal(got, want) {
				t.Errorf("tasks %q, want %q", got, want)
			}
			if got := column(t, db, "SELECT COUNT(*) FROM tasks WHERE id = 8 AND due_at IS NOT NULL")[0]; got != "0" {
				t.Error("what the site inserted would only begin when it expires")
			}
		})
	}
}

// TestVersion4IsMigrated: devices are kept, whether the step is taken for the first time or after a crash
// before its record, and their platform may be any.
func TestVersion4IsMigrated(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %t", crash), func(t *testing.T) {
			t.Parallel()
			db := version4(t)
			const insert = "INSERT INTO push_devices (member_id, platform, address_hash, registered_at) VALUES "
			run(t, db, insert+"(1, 'apns', UNHEX(SHA2(1, 256)), 1), (2, 'webpush', UNHEX(SHA2(2, 256)), 1), (3, 'fcm', UNHEX(SHA2(3, 256)), 1)")
			if crash {
				run(t, db, schema.Migrations()[1])
			}
			if err := schema.Apply(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if findings := check(t, db); len(findings) > 0 {
				t.Errorf("after the migration: %v", findings)
			}
			run(t, db, insert+"(4, 'gateway', UNHEX(SHA2(4, 256)), 1)")
			got := column(t, db, "SELECT CONCAT_WS(' ', id, member_id, platform, CONCAT('<', language, '>')) FROM push_devices ORDER BY id")
			if want := []string{"1 1 apns <>", "2 2 webpush <>", "3 3 fcm <>", "4 4 gateway <>"}; !slices.Equal(got, want) {
				t.Errorf("devices %q, want %q", got, want)
			}
		})
	}
}

// TestTablesOfBeforeAreRefused: there was no release with tables that record no version.
func TestTablesOfBeforeAreRefused(t *testing.T) {
	t.Parallel()
	db := version3(t)
	run(t, db, "ALTER TABLE tasks COMMENT = ''")
	if err := schema.ApplyOffline(t.Context(), db); err == nil || !strings.Contains(err.Error(), "before the first release") {
		t.Errorf("error %v", err)
	}
}

// TestASiteWithFewRights: a user that may read tasks sees the version, and nothing
// but ALTER is needed to migrate.
func TestASiteWithFewRights(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	admin := open(t, dsn)
	database := column(t, admin, "SELECT DATABASE()")[0]
	serve := restricted(t, admin, dsn, "serve_version", pageRights(database)...)
	if err := expanded.Compatible(t.Context(), serve); err == nil || !strings.Contains(err.Error(), "schema --apply") {
		t.Errorf("error %v, want that the schema is too old", err)
	}
	if err := expanded.Apply(t.Context(), serve, false); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("applied without the right to: %v", err)
	}
	apply(t, restricted(t, admin, dsn, "migrator", "CREATE, ALTER, INSERT, SELECT, INDEX ON "+database+".*"), expanded)
	if findings, err := expanded.Check(t.Context(), serve); err != nil || len(findings) > 0 {
		t.Errorf("found %v, %v", findings, err)
	}
}

// A long transaction of the site's is not waited for: its other statements would wait
// behind the migration. Where there is nothing to migrate, it does not matter.
func TestMigratingGivesUpBehindALongTransaction(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	undone(t, db, func(tx *sql.Tx) {
		run(t, tx, "INSERT INTO users (id) VALUES (1)", "INSERT INTO tasks (type, subject) VALUES ('upload', 1)")
		apply(t, db, present)
		err := expanded.Apply(t.Context(), db, false)
		if sent, ok := errors.AsType[*mysql.MySQLError](err); !ok || sent.Number != 1205 || !strings.Contains(err.Error(), "try again") {
			t.Errorf("error %v", err)
		}
	})
	apply(t, db, expanded)
}

// What is made by the client of the server has its version, too, and a client that
// runs a newer file over older tables changes neither.
func TestTheFileAloneKeepsTheVersion(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	apply(t, db, expanded)
	before := described(t, db)
	run(t, db, schema.TableStatements(activityd.Schema)...)
	if diff := gocmp.Diff(before, described(t, db)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
