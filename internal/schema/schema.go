// Package schema makes, migrates and checks the tables of schema.sql, and installs
// the triggers of triggers.sql.
package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
)

// Tables returns the names of the tables of schema.sql.
func Tables() (names []string) {
	for _, t := range tablesOf(activityd.Schema) {
		names = append(names, t.name)
	}
	return names
}

// Apply makes the tables of schema.sql that are missing and migrates those that
// activityd owns to the version of this program. Views and the site's tables stay as
// they are. Processes of the version that the database has may go on working: Apply
// refuses to begin if a step would shut them out, see [ApplyOffline].
//
// It is safe to call again after an error or a crash, which leave the tables at one
// of the steps, and from several hosts at once. It waits at most 5 seconds for the lock
// of a table, as the site's statements wait behind it. Errors wrap those of the driver.
func Apply(ctx context.Context, db *sql.DB) error {
	return migrations.apply(ctx, db, false)
}

// ApplyOffline is like [Apply], for a database on which no process works: it takes
// all steps.
func ApplyOffline(ctx context.Context, db *sql.DB) error {
	return migrations.apply(ctx, db, true)
}

// ApplyTo is [Apply] for some of the tables, by their names. The migrations are those of the
// table tasks: without it there are none.
func ApplyTo(ctx context.Context, db *sql.DB, tables ...string) error {
	return migrations.apply(ctx, db, false, tables...)
}

func (h history) apply(ctx context.Context, db *sql.DB, offline bool, only ...string) error {
	return withSession(ctx, db, func(conn *sql.Conn) error {
		if err := lockSchema(ctx, conn); err != nil {
			return err
		}
		wanted := func(table string) bool { return len(only) == 0 || slices.Contains(only, table) }
		var is version
		var steps []migration
		var err error
		if wanted("tasks") {
			if is, err = versionIn(ctx, conn); err == nil {
				steps, err = h.after(is, offline)
			}
			if err != nil {
				return err
			}
		}
		for _, t := range tablesOf(activityd.Schema) {
			if !wanted(t.name) {
				continue
			}
			if _, err := conn.ExecContext(ctx, t.statement); err != nil {
				return fmt.Errorf("make table %s: %w", t.name, err)
			}
		}
		return migrate(ctx, conn, is, steps)
	})
}

// migrate takes steps from a version on, and records each. A step may have been taken
// before, by a process that crashed before it recorded it, or with CREATE TABLE.
func migrate(ctx context.Context, conn *sql.Conn, is version, steps []migration) error {
	for _, step := range steps {
		is.number, is.since = is.number+1, step.since
		if err := step.take(ctx, conn); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", is.number, advise(err))
		}
		if _, err := conn.ExecContext(ctx, is.record()); err != nil {
			return fmt.Errorf("record schema version %d: %w", is.number, advise(err))
		}
	}
	return nil
}

func (m migration) take(ctx context.Context, conn *sql.Conn) error {
	if m.before != nil {
		if err := m.before(ctx, conn); err != nil {
			return err
		}
	}
	if _, err := conn.ExecContext(ctx, m.statement); err != nil && !mysql.IsChanged(err) {
		return fmt.Errorf("%s: %w", m.statement, err)
	}
	if m.after != nil {
		return m.after(ctx, conn)
	}
	return nil
}

// lockSchema keeps other processes from applying a schema to the same database until
// conn is closed.
func lockSchema(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullBool
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT_WS(' ', 'activityd schema', LEFT(SHA2(DATABASE(), 256), 40)), 10)").Scan(&got)
	if err == nil && !got.Bool {
		return errors.New("another `activityd schema --apply` has been at work for 10 s: try again when it is done")
	}
	return err
}

// withSession runs f on a connection of its own, with a short timeout for locks. It is
// closed afterwards, which releases all of them.
func withSession(ctx context.Context, db *sql.DB, f func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the one way to keep it from being reused
		_ = conn.Close()
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 5"); err != nil {
		return err
	}
	return f(conn)
}

// advise adds the remedy to an error about a change of the tables or triggers.
func advise(err error) error {
	switch {
	case mysql.IsLockWait(err):
		return fmt.Errorf("%w: a long transaction uses one of the tables; try again when it is over", err)
	case mysql.NeedsLogTrust(err):
		return fmt.Errorf("%w: as the server writes a binary log, have its administrator SET GLOBAL log_bin_trust_function_creators = 1, or run this as a user with all rights", err)
	}
	return err
}
