package contacts_test

import (
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
)

func TestOpenMySQLRefusesWithoutTellingThePassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, dsn := range []string{
		"", secret, "user:" + secret + "@tcp(host:3306)", "user:" + secret + "@tcp(host:3306)/",
		"user:pass@" + secret + "(host)/db", "user:x@tcp(host:3306)/db?tls=" + secret,
		"user:x@tcp(host:3306)/db?timeout=" + secret, "user:x@tcp(host:3306)/%zz" + secret, "user:x@" + secret + "/db",
	} {
		db, err := contacts.OpenMySQL(dsn)
		if !errors.Is(err, contacts.ErrDSN) || db != nil {
			t.Errorf("OpenMySQL(%q) = %v, %v, want ErrDSN", dsn, db, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("OpenMySQL(%q) tells the password: %v", dsn, err)
		}
	}
}

func TestPlaceTellsTheDatabaseAndNotWho(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"ada:hunter2@tcp(host:3306)/site":                 "tcp(host:3306)/site",
		"bob:a/b@c@tcp(host)/site?timeout=3s":             "tcp(host:3306)/site",
		"ada@unix(/run/mysqld.sock)/site?charset=utf8mb4": "unix(/run/mysqld.sock)/site",
	} {
		if got, err := contacts.Place(dsn); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", dsn, got, err, want)
		}
	}
	if _, err := contacts.Place("hunter2"); !errors.Is(err, contacts.ErrDSN) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("of none: %v", err)
	}
}

// TestOpenMySQLInsists: whatever the DSN asks for, our settings hold.
func TestOpenMySQLInsists(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	dsn += separator + "interpolateParams=false&clientFoundRows=false&charset=latin1&collation=gbk_chinese_ci&multiStatements=true&time_zone=%27%2B05%3A00%27"
	db, err := contacts.OpenMySQL(dsn, contacts.WithMaxOpen(1), contacts.WithLifetime(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if got := db.Stats().MaxOpenConnections; got != 1 {
		t.Errorf("the pool takes %d connections, want 1", got)
	}
	ctx := t.Context()
	if _, err := db.ExecContext(ctx, "INSERT INTO users (id, username) VALUES (?, ?)", member.ID(1), "☀ sun"); err != nil {
		t.Fatal(err)
	}
	result, err := db.ExecContext(ctx, "UPDATE users SET username = ? WHERE id = ?", "☀ sun", 1)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Errorf("an UPDATE without effect counts %d rows, %v, want the 1 that it matched", n, err)
	}
	var charset, name string
	var length int
	row := db.QueryRowContext(ctx,
		`SELECT @@character_set_connection, username, CHAR_LENGTH(username) FROM users WHERE id = ?`, 1)
	if err := row.Scan(&charset, &name, &length); err != nil {
		t.Fatal(err)
	}
	if charset != "utf8mb4" || name != "☀ sun" || length != 5 {
		t.Errorf("charset %s, name %q of %d characters", charset, name, length)
	}
	var zone string
	if err := db.QueryRowContext(ctx, "SELECT @@session.time_zone").Scan(&zone); err != nil || zone != "+00:00" {
		t.Errorf("time zone %q, %v: elsewhere the clock of the queue jumps with daylight saving time", zone, err)
	}
	if prepared := sessionStatus(t, db, "Com_stmt_prepare"); prepared != 0 {
		t.Errorf("%d statements were prepared, want none", prepared)
	}
	if _, err := db.ExecContext(ctx, "DO 1; DO 2"); err == nil {
		t.Error("two statements in one were accepted")
	}
}

// TestAnAbandonedTransactionEnds: whoever stops in the middle of a transaction
// holds its locks no longer than the server waits for the next statement.
func TestAnAbandonedTransactionEnds(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	for wait, query := range map[int]string{30: "", 1: "wait_timeout=1"} {
		db := openWith(t, dsn, query)
		var got int
		if err := db.QueryRowContext(t.Context(), "SELECT @@session.wait_timeout").Scan(&got); err != nil || got != wait {
			t.Errorf("with %q, the server waits %d s, %v, want %d", query, got, err, wait)
		}
	}
	stopped, other := openWith(t, dsn, "wait_timeout=1"), openWith(t, dsn, "innodb_lock_wait_timeout=20")
	tx, err := stopped.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO users (id) VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), "INSERT INTO users (id) VALUES (1)"); err != nil {
		t.Errorf("the row of an abandoned transaction is not free: %v", err)
	}
	if err := contacts.Translate(t.Context(), "commit", tx.Commit()); !errors.Is(err, contacts.ErrUnavailable) {
		t.Errorf("committing an abandoned transaction: %v, want ErrUnavailable", err)
	}
}

// openWith opens the database of a DSN with more parameters.
func openWith(t *testing.T, dsn, query string) *sql.DB {
	t.Helper()
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	db, err := contacts.OpenMySQL(dsn + separator + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// fixedSession is what every connection has, and the names of the variables.
func fixedSession(version string) map[string]string {
	want := map[string]string{
		"autocommit": "1", "completion_type": "NO_CHAIN", "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
		"sql_select_limit": "18446744073709551615", "sql_big_selects": "1", "sql_safe_updates": "0", "sql_auto_is_null": "0",
		"foreign_key_checks": "1", "unique_checks": "1", "max_sort_length": "1024", "time_zone": "+00:00",
		"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "utf8mb4", "collation_connection": "utf8mb4_bin",
		"innodb_lock_wait_timeout": "5",
	}
	if strings.Contains(version, "MariaDB") {
		maps.Copy(want, map[string]string{
			"tx_isolation": "REPEATABLE-READ", "tx_read_only": "0", "query_cache_type": "OFF", "system_versioning_asof": "DEFAULT",
		})
	} else {
		maps.Copy(want, map[string]string{
			"transaction_isolation": "REPEATABLE-READ", "transaction_read_only": "0", "use_secondary_engine": "OFF",
		})
	}
	return want
}

// TestEveryConnectionSetsItsSessionUp: on a server whose defaults are all others,
// as a plain connection shows, ours have the session that the statements rely on,
// also after they were used.
func TestEveryConnectionSetsItsSessionUp(t *testing.T) {
	t.Parallel()
	dsn := servertest.HostileMySQL(t)
	plain, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	ours, err := contacts.OpenMySQL(dsn, contacts.WithMaxOpen(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	want := fixedSession(value(t, plain, "VERSION()"))
	for _, when := range []string{"new", "used"} {
		for name, want := range want {
			if got := value(t, ours, "@@session."+name); got != want {
				t.Errorf("%s connection: %s is %s, want %s", when, name, got, want)
			}
			if got := value(t, plain, "@@session."+name); got == want {
				t.Errorf("the server's own %s is %s, too: the test is blind", name, got)
			}
		}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			tx, err := ours.BeginTx(t.Context(), &sql.TxOptions{Isolation: level, ReadOnly: level == sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := value(t, ours, "NOW() > '2020-01-01'"); got != "1" {
		t.Errorf("the clock stands at %s", value(t, ours, "NOW()"))
	}
}

func value(t *testing.T, db *sql.DB, expression string) (got string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT "+expression).Scan(&got); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return got
}
