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

// Part is a part of the tables of schema.sql. A database has all of them, or one part:
// the queue may live apart from the site's tables. Functions that take parts mean all
// tables if none is named.
type Part string

// The parts.
const (
	Queue Part = "queue" // tasks, task_leases, parked_tasks, paused_queues, task_keys
	Site  Part = "site"  // all others
)

// Tables returns the names of the tables of schema.sql, or of a part.
func Tables(of ...Part) (names []string) {
	for _, t := range wantedTables(of) {
		names = append(names, t.name)
	}
	return names
}

// wantedTables returns the tables of parts.
func wantedTables(of []Part) []wantedTable {
	return slices.DeleteFunc(tablesOf(activityd.Schema), func(t wantedTable) bool {
		return len(of) > 0 && !slices.Contains(of, t.part)
	})
}

// Apply makes the tables of schema.sql that are missing and migrates those that
// activityd owns to the version of this program. Views and the site's tables stay as
// they are. Processes of the version that the database has may go on working: Apply
// refuses to begin if a step would shut them out, see [ApplyOffline].
//
// It is safe to call again after an error or a crash, which leave the tables at one
// of the steps, and from several hosts at once. It waits at most 5 seconds for the lock
// of a table, as the site's statements wait behind it. Errors wrap those of the driver.
func Apply(ctx context.Context, db *sql.DB, of ...Part) error {
	return migrations.apply(ctx, db, false, of)
}

// ApplyOffline is like [Apply], for a database on which no process works: it takes
// all steps.
func ApplyOffline(ctx context.Context, db *sql.DB, of ...Part) error {
	return migrations.apply(ctx, db, true, of)
}

func (h history) apply(ctx context.Context, db *sql.DB, offline bool, of []Part) error {
	return withSession(ctx, db, func(conn *sql.Conn) error {
		if err := lockSchema(ctx, conn); err != nil {
			return err
		}
		is, err := versionIn(ctx, conn)
		if err != nil {
			return err
		}
		steps, err := h.after(is, offline)
		if err != nil {
			return err
		}
		for _, t := range wantedTables(of) {
			if _, err := conn.ExecContext(ctx, t.statement); err != nil {
				return fmt.Errorf("make table %s: %w", t.name, err)
			}
		}
		return migrate(ctx, conn, is, steps)
	})
}

// migrate takes steps from a version on, and records each. A step may have been taken
// before, by a process that crashed before it recorded it, or with CREATE TABLE; or its
// table is in another database.
func migrate(ctx context.Context, conn *sql.Conn, is version, steps []migration) error {
	for _, step := range steps {
		is.number, is.since = is.number+1, step.since
		if err := step.take(ctx, conn); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", is.number, advise(err))
		}
		if err := is.record(ctx, conn); err != nil {
			return err
		}
	}
	if is.number == 0 { // the tables were made with their record
		return nil
	}
	return is.record(ctx, conn)
}

func (m migration) take(ctx context.Context, conn *sql.Conn) error {
	if m.before != nil {
		if err := m.before(ctx, conn); err != nil {
			return err
		}
	}
	if _, err := conn.ExecContext(ctx, m.statement); err != nil && !mysql.IsChanged(err) && !mysql.IsNoSuchTable(err) {
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

// RaiseTaskIDs raises the ids of new tasks in the queue's database above those that the site's
// database knows: the id of its task identifies an event, and the site's database keeps it for
// as long as the event. It is needed after the queue moved there, or lost rows.
func RaiseTaskIDs(ctx context.Context, site, queue *sql.DB) error {
	var last, left uint64
	if err := site.QueryRowContext(ctx, "SELECT COALESCE(MAX(task_id), 0) FROM push_events").Scan(&last); err != nil {
		return mysql.Translate(ctx, raising, err)
	}
	switch err := site.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM tasks").Scan(&left); {
	case err == nil: // as long as a process works on the tasks that were left behind, more may come
		last = max(last, left) + 1_000_000_000_000
	case !mysql.IsNoSuchTable(err):
		return mysql.Translate(ctx, raising, err)
	}
	return raise(ctx, queue, last)
}

// KeepTaskIDs is a cheap RaiseTaskIDs for the start of each process: a queue that lost rows in a
// failover does not give their ids again. It compares the ids with those of the newest 1,000 events
// only.
func KeepTaskIDs(ctx context.Context, site, queue *sql.DB) error {
	var last uint64
	err := site.QueryRowContext(ctx, "SELECT COALESCE(MAX(task_id), 0) FROM (SELECT task_id FROM push_events FORCE INDEX (PRIMARY) ORDER BY number DESC LIMIT 1000) AS newest").Scan(&last)
	if err != nil {
		return mysql.Translate(ctx, raising, err)
	}
	return raise(ctx, queue, last)
}

// raising names the work of the two.
const raising = "raise the ids of tasks"

// raise raises the ids of new tasks above last.
func raise(ctx context.Context, queue *sql.DB, last uint64) error {
	if last == 0 {
		return nil
	}
	// The number of the next row never falls, though the row is deleted with it.
	err := mysql.Transact(ctx, queue, raising, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tasks (id, type, subject) VALUES (?, 'none', 0)", last); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM tasks WHERE id = ?", last)
		return err
	})
	if mysql.IsDuplicate(err) { // they are above it
		return nil
	}
	return err
}
