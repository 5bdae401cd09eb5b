package servertest_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMySQLGivesEachTestADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := servertest.MySQL(t), servertest.MySQL(t)
	mustExec(t, a, "INSERT INTO users (id, username) VALUES (1, 'ada')")
	if n := count(t, a, "SELECT COUNT(*) FROM users"); n != 1 {
		t.Errorf("the first database has %d users, want 1", n)
	}
	if n := count(t, b, "SELECT COUNT(*) FROM users"); n != 0 {
		t.Errorf("the second database has %d users, want 0", n)
	}
}

func TestMySQLDropsTheDatabase(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("user", func(t *testing.T) {
		db := servertest.MySQL(t)
		if err := db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	n := count(t, servertest.MySQL(t), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name)
	if name == "" || n != 0 {
		t.Errorf("database %q: %d left, want none", name, n)
	}
}

func TestMySQLHasTheWholeSchema(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	want := len(schema.Tables())
	got := count(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()")
	if got != want {
		t.Errorf("the schema makes %d tables, want %d", got, want)
	}
	if err := schema.Apply(t.Context(), db); err != nil {
		t.Errorf("the schema applied again: %v", err)
	}
}

func TestSchemaErrorNamesTheTable(t *testing.T) {
	t.Parallel()
	m := servertest.OwnMySQL(t)
	db, err := sql.Open("mysql", m.DSN("")) // no database to make tables in
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = schema.Apply(t.Context(), db)
	if err == nil || !strings.Contains(err.Error(), "make table users") {
		t.Errorf("error %v does not name the table", err)
	}
}

func TestOwnMySQLCanBeKilledAndRestarted(t *testing.T) {
	t.Parallel()
	m := servertest.OwnMySQL(t)
	db, err := sql.Open("mysql", m.DSN(servertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	mustExec(t, db, "INSERT INTO users (id, username) VALUES (7, 'ada')")
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM users WHERE id = 7"); n != 1 {
		t.Errorf("%d rows after the restart, want the committed one", n)
	}
}

func mustExec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db *sql.DB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
