package once_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/oncetest"
	"github.com/activityd/activityd/once"
)

// openMySQL returns a pool of connections to a database.
func openMySQL(t *testing.T, dsn string, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newMySQL returns a store in a database of the test's own.
func newMySQL(t *testing.T) (*once.MySQL, *sql.DB) {
	t.Helper()
	db := openMySQL(t, servertest.MySQLDSN(t))
	return once.NewMySQL(db), db
}

// ageMySQL moves the times of a state back by d.
func ageMySQL(t *testing.T, db *sql.DB, name string, d time.Duration) {
	t.Helper()
	execMySQL(t, db, "UPDATE once_keys SET began = IF(began > ?, began - ?, 0), lease_ends = IF(lease_ends > ?, lease_ends - ?, 0), forget_at = IF(forget_at > ?, forget_at - ?, 0), changes = changes + 1 WHERE name = ?",
		d.Milliseconds(), d.Milliseconds(), d.Milliseconds(), d.Milliseconds(), d.Milliseconds(), d.Milliseconds(), name)
}

func execMySQL(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestMySQLIsAStore(t *testing.T) {
	t.Parallel()
	oncetest.TestStore(t, func(t *testing.T) oncetest.Harness {
		store, db := newMySQL(t)
		return oncetest.Harness{Store: store, Age: func(name string, d time.Duration) error {
			ageMySQL(t, db, name, d)
			return nil
		}}
	})
}
