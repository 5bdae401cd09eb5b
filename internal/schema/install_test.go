package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// standard are the triggers of triggers.sql.
var standard = schema.StandardTriggers()

// ofOurs is the number of triggers that triggers.sql makes.
const ofOurs = 10

// installed are all triggers of the database, word for word.
func installed(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return column(t, db, "SELECT CONCAT_WS(' ', trigger_name, action_timing, event_manipulation, event_object_table, action_statement)"+
		" FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY trigger_name")
}

func TestInstallingAgainReplacesAndRemovingLeavesTheSitesOwn(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	run(t, db,
		"CREATE TRIGGER own AFTER INSERT ON photos FOR EACH ROW SET @own = 1",
		"CREATE TRIGGER activityd_of_before AFTER INSERT ON contacts FOR EACH ROW SET @older = 1",
		"CREATE TRIGGER activityd_photos_after_insert AFTER INSERT ON photos FOR EACH ROW SET @older = 1")
	for range 2 {
		install(t, db)
		all := installed(t, db)
		if len(all) != 1+ofOurs || strings.Contains(strings.Join(all, "\n"), "@older") {
			t.Fatalf("installed: %q", all)
		}
	}
	for _, want := range []int{ofOurs, 0} {
		if n, err := standard.Remove(t.Context(), db); err != nil || n != want {
			t.Errorf("removed %d triggers, %v, want %d", n, err, want)
		}
	}
	if left := installed(t, db); len(left) != 1 || !strings.HasPrefix(left[0], "own ") {
		t.Errorf("left: %q", left)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A check finds triggers of another version, and a trigger that is gone, as after a restore; installing mends both.
func TestTriggersOfAnEarlierVersionAreFoundAndReplaced(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	wantFindings := func(want int) {
		t.Helper()
		findings := check(t, db)
		if len(findings) != want {
			t.Errorf("findings %v, want %d", findings, want)
		}
		for _, f := range findings {
			if f.Wrong || f.Table != "photos" || !strings.Contains(f.What, "activityd_photos_after_insert") || f.Do != "activityd schema --triggers --apply" {
				t.Errorf("finding %+v", f)
			}
		}
	}
	install(t, db)
	wantFindings(0)
	const drop = "DROP TRIGGER activityd_photos_after_insert"
	for _, older := range []string{"CREATE TRIGGER activityd_photos_after_insert AFTER INSERT ON photos FOR EACH ROW SET @older = 1", "DO 1"} {
		run(t, db, drop, older)
		wantFindings(1)
		install(t, db)
		wantFindings(0)
	}
}

func TestInstallingIsRefusedWhereItCannotWork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ do, want string }{
		"a view":         {"DROP TABLE photos; CREATE VIEW photos AS SELECT 1 AS owner_id, 'x' AS visibility, 2 AS date_upload", "photos must be a table"},
		"no queue":       {"DROP TABLE tasks", "the triggers would fail at \"INSERT INTO tasks"},
		"no last upload": {"ALTER TABLE users DROP COLUMN last_upload", "last_upload"},
		"no date":        {"ALTER TABLE photos CHANGE date_upload uploaded BIGINT UNSIGNED", "date_upload"},
		"an older queue": {"ALTER TABLE tasks DROP COLUMN subject", "subject"},
		"a taken name":   {"CREATE TRIGGER activityd_photos_after_insert BEFORE INSERT ON blocks FOR EACH ROW SET @x = 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servertest.MySQL(t)
			run(t, db, strings.Split(test.do, "; ")...)
			err := standard.Install(t.Context(), db)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if all := installed(t, db); test.want != "" && len(all) > 0 {
				t.Errorf("installed all the same: %q", all)
			}
		})
	}
}

// restricted is a connection to db's database by a user with the given rights.
func restricted(t *testing.T, admin *sql.DB, dsn, user string, grants ...string) *sql.DB {
	t.Helper()
	run(t, admin, fmt.Sprintf("CREATE USER %s@localhost IDENTIFIED BY 'secret'", user))
	t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), fmt.Sprintf("DROP USER %s@localhost", user)) })
	for _, grant := range grants {
		run(t, admin, fmt.Sprintf("GRANT %s TO %s@localhost", grant, user))
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = user, "secret"
	return open(t, cfg.FormatDSN())
}

// The least rights are in docs/setup.md.
const leastRights = "SELECT, INSERT, UPDATE, TRIGGER, LOCK TABLES ON "

// A user with the rights that the docs name can do it, and the site's own user
// needs no right to anything but the site's tables.
func TestTriggersRunWithTheRightsOfTheirMaker(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	admin := open(t, dsn)
	database := column(t, admin, "SELECT DATABASE()")[0]
	install(t, restricted(t, admin, dsn, "maker", leastRights+database+".*"))
	site := restricted(t, admin, dsn, "site", "INSERT, SELECT, DELETE ON "+database+".contacts", "INSERT, SELECT ON "+database+".photos", "SELECT, INSERT (id, username), DELETE ON "+database+".users")
	run(t, site,
		"INSERT INTO users (id) VALUES (1), (2)",
		"INSERT INTO contacts (user_id, contact_id) VALUES (1, 2)",
		"INSERT INTO photos (owner_id, visibility, date_upload) VALUES (2, 'public', 5)",
		"DELETE FROM users WHERE id = 2")
	want := []string{"add_contact 1 2", "refill 2", "remove_contact 1 2", "upload 2"}
	if diff := gocmp.Diff(want, queued(t, admin)); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
}

// A user that lacks a right changes nothing, and the error names the right.
func TestAMissingRightChangesNothing(t *testing.T) {
	t.Parallel()
	for i, test := range []struct{ grants, want string }{
		{"SELECT, INSERT, UPDATE, LOCK TABLES ON %s.*", "TRIGGER command denied"},
		{"SELECT, INSERT, UPDATE, TRIGGER ON %s.*", "lock contacts, photos, users"},
		{"SELECT, UPDATE, TRIGGER, LOCK TABLES ON %s.*", "the triggers would fail at \"INSERT INTO tasks"},
		{"SELECT, INSERT, TRIGGER, LOCK TABLES ON %s.*", "the triggers would fail at \"UPDATE users"},
		{"SELECT, INSERT, UPDATE, LOCK TABLES ON %s.*; TRIGGER ON %s.contacts; TRIGGER ON %s.photos", "TRIGGER command denied"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			dsn := servertest.MySQLDSN(t)
			admin := open(t, dsn)
			database := column(t, admin, "SELECT DATABASE()")[0]
			grants := strings.Split(strings.ReplaceAll(test.grants, "%s", database), "; ")
			poor := restricted(t, admin, dsn, fmt.Sprintf("poor%d", i), grants...)
			for _, before := range []string{"nothing", "everything"} {
				if before == "everything" {
					install(t, admin)
				}
				was := installed(t, admin)
				if err := standard.Install(t.Context(), poor); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("over %s: error %v, want one with %q", before, err, test.want)
				}
				if diff := gocmp.Diff(was, installed(t, admin)); diff != "" {
					t.Errorf("over %s (-before +after):\n%s", before, diff)
				}
			}
			if strings.Contains(test.want, "TRIGGER") {
				if _, err := standard.Remove(t.Context(), poor); err == nil {
					t.Error("removed triggers without the right to")
				}
			}
		})
	}
}

// A transaction that uses a table is not waited for forever: the site's
// statements would wait, too.
func TestInstallingGivesUpBehindALongTransaction(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	undone(t, db, func(tx *sql.Tx) {
		run(t, tx, "INSERT INTO users (id) VALUES (1)")
		err := standard.Install(t.Context(), db)
		if sent, ok := errors.AsType[*mysql.MySQLError](err); !ok || sent.Number != 1205 || !strings.Contains(err.Error(), "try again") {
			t.Errorf("error %v", err)
		}
	})
	install(t, db)
}

// Many write for an owner at once, under a foreign key, some of them in long
// transactions: none is the victim of a deadlock, and the latest upload counts.
func TestConcurrentUploadsOfOneOwner(t *testing.T) {
	t.Parallel()
	const writers, photos = 8, 40
	db := servertest.MySQL(t)
	run(t, db, cascades...)
	install(t, db)
	run(t, db, "INSERT INTO users (id) VALUES (1)")
	group, ctx := errgroup.WithContext(t.Context())
	for w := range uint64(writers) {
		group.Go(func() error {
			rnd := rand.New(rand.NewPCG(1, w))
			for range photos / 4 {
				if err := upload(ctx, db, rnd); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	newest := column(t, db, "SELECT MAX(date_upload) FROM photos")[0]
	if got := uploads(t, db); got != "1:"+newest {
		t.Errorf("last uploads %q, want 1:%s", got, newest)
	}
	if got := slices.Compact(queued(t, db)); !slices.Equal(got, []string{"upload 1"}) {
		t.Errorf("tasks %q", got)
	}
}

// upload adds four photos of owner 1: each by itself, or all in a transaction
// that may be rolled back.
func upload(ctx context.Context, db *sql.DB, rnd *rand.Rand) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	to, commit := session(db), true
	if rnd.IntN(2) == 0 {
		to, commit = tx, rnd.IntN(3) > 0
	}
	for range 4 {
		if _, err := to.ExecContext(ctx, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (1, 'public', ?)", 1000+rnd.IntN(100_000)); err != nil {
			return err
		}
	}
	if commit {
		return tx.Commit()
	}
	return nil
}
