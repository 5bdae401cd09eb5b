package localserver_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
)

func startMySQL(t *testing.T, args ...string) *localserver.MySQL {
	t.Helper()
	m, err := localserver.StartMySQL(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Kill() // faster than an orderly end, and an error if the test closed it
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestMySQLStartsAndCreatesDatabases(t *testing.T) {
	t.Parallel()
	m := startMySQL(t, "--innodb-buffer-pool-size=33554432", "--innodb-flush-log-at-trx-commit=2")
	const name = "odd `name`"
	if err := m.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	var got, version string
	var pool, flush int
	row := openDB(t, m.DSN(name)).QueryRowContext(t.Context(),
		"SELECT DATABASE(), VERSION(), @@innodb_buffer_pool_size, @@innodb_flush_log_at_trx_commit")
	if err := row.Scan(&got, &version, &pool, &flush); err != nil {
		t.Fatal(err)
	}
	if got != name || version != m.Version() || pool != 32<<20 || flush != 2 {
		t.Errorf("database %q, version %q (said %q), pool %d, flush %d", got, version, m.Version(), pool, flush)
	}
	if err := m.CreateDatabase(t.Context(), name); err == nil {
		t.Error("a database was created twice")
	}
}

func TestMySQLListensOnItsSocketOnly(t *testing.T) {
	t.Parallel()
	m := startMySQL(t)
	var skipped, flush int
	row := openDB(t, m.DSN("")).QueryRowContext(t.Context(),
		"SELECT @@skip_networking, @@innodb_flush_log_at_trx_commit")
	if err := row.Scan(&skipped, &flush); err != nil {
		t.Fatal(err)
	}
	if skipped != 1 || flush != 1 {
		t.Errorf("skip_networking %d, flush at commit %d, want 1 and 1", skipped, flush)
	}
}

func TestMySQLKeepsItsDataThroughKillAndRestart(t *testing.T) {
	t.Parallel()
	m := startMySQL(t)
	if err := m.CreateDatabase(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	db := openDB(t, m.DSN("kept"))
	for _, query := range []string{"CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO t VALUES (42)"} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	for _, stop := range []func() error{m.Kill, func() error { return nil }} { // a crash, then an orderly restart
		if err := errors.Join(stop(), m.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		var id int
		if err := openDB(t, m.DSN("kept")).QueryRowContext(t.Context(), "SELECT id FROM t").Scan(&id); err != nil || id != 42 {
			t.Errorf("after the restart: id %d, %v; want 42", id, err)
		}
	}
}

func TestMySQLPauseAndResume(t *testing.T) {
	t.Parallel()
	m := startMySQL(t)
	db := openDB(t, m.DSN(""))
	if err := errors.Join(db.PingContext(t.Context()), m.Pause()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := db.PingContext(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: %v, want a time-out", err)
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("a resumed server: %v", err)
	}
}

func TestMySQLCloseRemovesTheFolder(t *testing.T) {
	t.Parallel()
	m := startMySQL(t)
	if err := m.Pause(); err != nil { // even a paused server can be closed
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(m.Addr())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if err := m.Restart(t.Context()); err == nil {
		t.Error("a closed server was restarted")
	}
}

func TestMySQLStartFailureShowsTheLog(t *testing.T) {
	temporary := ownTempDir(t)
	_, err := localserver.StartMySQL(t.Context(), "--no-such-thing")
	if err == nil || !strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("error %v does not show what the server complained of", err)
	}
	assertEmpty(t, temporary)
}

func TestMySQLStartIsBoundByItsContext(t *testing.T) {
	temporary := ownTempDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := localserver.StartMySQL(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that the time was up", err)
	}
	assertEmpty(t, temporary)
}

// ownTempDir makes the servers of this test put their folders into one that is
// returned, so that what they leave behind can be seen. The test cannot be
// parallel. The path is short enough for a socket in it.
func ownTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("%s holds %v (%v), want nothing", dir, entries, err)
	}
}
