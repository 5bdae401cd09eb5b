package once_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
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

// A table of its own is all that a program needs, made by any number of processes at once.
func TestMigrateTwiceAndAtOnce(t *testing.T) {
	t.Parallel()
	db, err := once.OpenDB(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "DROP TABLE once_keys, tasks"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := once.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	registry := prometheus.NewRegistry()
	for i := range 2 { // a registerer may be used twice
		o := once.New(once.NewMySQL(db), once.Options{Registerer: registry})
		if did, err := o.Do(t.Context(), once.Key{Name: "digest/2026-11-26"}, func(context.Context, once.Attempt) error { return nil }); err != nil || did != (i == 0) {
			t.Errorf("time %d: %v, %v", i, did, err)
		}
	}
	var tables int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'tasks'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables of the queue, %v", tables, err)
	}
}

func TestWithoutADatabase(t *testing.T) {
	t.Parallel()
	for want, build := range map[string]func(){
		"once: NewMySQL: db is nil": func() { once.NewMySQL(nil) },
		"once: New: store is nil":   func() { once.New(nil, once.Options{}) },
	} {
		func() {
			defer func() {
				if value := recover(); value != want {
					t.Errorf("panic %v, want %q", value, want)
				}
			}()
			build()
		}()
	}
}
