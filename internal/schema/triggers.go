package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd"
)

// prefix begins the names of all triggers that are activityd's own.
const prefix = "activityd_"

// TriggerStatements returns the statements of triggers.sql that make a trigger.
func TriggerStatements() []string {
	return slices.DeleteFunc(split(activityd.Triggers), func(s string) bool { return !strings.HasPrefix(s, "CREATE TRIGGER ") })
}

var createTrigger = regexp.MustCompile(`^CREATE TRIGGER (\w+) (?:BEFORE|AFTER) \w+ ON (\w+) FOR EACH ROW`)

// trigger is one that exists, or is to be made.
type trigger struct {
	name, table string
	statement   string // that makes it; empty: hidden from this user
}

// hidden triggers are those that this user has no right to make or to drop.
func (t trigger) hidden() bool { return t.statement == "" }

// wanted are the triggers of triggers.sql.
func wanted() []trigger {
	var list []trigger
	for _, s := range TriggerStatements() {
		if words := createTrigger.FindStringSubmatch(s); words != nil {
			list = append(list, trigger{words[1], words[2], s})
		}
	}
	return list
}

// tablesOf are the tables that triggers stand on, sorted.
func tablesOf(triggers []trigger) []string {
	var tables []string
	for _, t := range triggers {
		tables = append(tables, t.table)
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

// InstallTriggers makes the triggers of triggers.sql in the database of db, in
// place of those of activityd's that are there, and returns how many there are
// now. Other triggers are left alone. It needs the rights to lock the tables and
// to make triggers, and those that the triggers need when they run, which they do
// in the name of db's user. db should come from mysql.Open: triggers keep
// the sql_mode and the character set of the connection that makes them.
//
// It changes nothing unless all can be made: the tables are locked, so that no
// change of the site's slips through while old triggers make place for new ones,
// and after an error the old ones are put back. It waits 5 seconds for the locks:
// the site's statements wait behind it. Errors are for people; errors.As finds
// the driver's in them.
func InstallTriggers(ctx context.Context, db *sql.DB) (int, error) {
	want := wanted()
	err := withSession(ctx, db, func(conn *sql.Conn) error {
		if err := checkTables(ctx, conn, tablesOf(want)); err != nil {
			return err
		}
		if err := checkRights(ctx, conn); err != nil {
			return err
		}
		present, err := presentTriggers(ctx, conn)
		if err != nil {
			return err
		}
		return locked(ctx, conn, tablesOf(slices.Concat(want, present)), func() error {
			return replaceTriggers(ctx, conn, present, want)
		})
	})
	return len(want), advise(err)
}

// RemoveTriggers drops all triggers of activityd's in the database of db, and
// returns how many they were. After an error some may be left; calling it again
// is safe.
func RemoveTriggers(ctx context.Context, db *sql.DB) (removed int, err error) {
	err = withSession(ctx, db, func(conn *sql.Conn) error {
		present, err := presentTriggers(ctx, conn)
		if err != nil {
			return err
		}
		removed = len(present)
		// A user who may not make triggers does not see them either. To drop
		// those of triggers.sql, seen or not, says so.
		return swap(context.WithoutCancel(ctx), conn, slices.Concat(present, wanted()), nil)
	})
	return removed, advise(err)
}

// withSession lends f a connection that gives up soon when a table is in use. It is
// thrown away afterwards, together with all that it has locked.
func withSession(ctx context.Context, db *sql.DB, f func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the one way to say: do not reuse
		_ = conn.Close()
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 5"); err != nil {
		return err
	}
	return f(conn)
}

// checkTables refuses a database in which one of the tables is not there, or is a
// view.
func checkTables(ctx context.Context, conn *sql.Conn, tables []string) error {
	rows, err := conn.QueryContext(ctx, "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE()")
	if err != nil {
		return err
	}
	defer rows.Close()
	kinds := make(map[string]string)
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return err
		}
		kinds[name] = kind
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range append([]string{"tasks"}, tables...) {
		switch kinds[name] {
		case "":
			return fmt.Errorf("there is no table %s that this user can see: `activityd schema --apply` makes it", name)
		case "VIEW":
			return fmt.Errorf("%s is a view, on which there are no triggers: make triggers on the tables beneath it,"+
				" after the pattern of `activityd schema --triggers`, or insert the tasks in the site's own transactions", name)
		}
	}
	return nil
}

// needed does nothing but fails where a trigger would when it runs.
var needed = []string{
	"UPDATE users SET last_upload = last_upload WHERE FALSE",
	"SELECT id FROM users WHERE FALSE FOR UPDATE",
	"SELECT user_id, contact_id FROM contacts WHERE FALSE",
	"SELECT owner_id, date_upload FROM photos WHERE FALSE",
	"INSERT INTO tasks (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
}

// checkRights makes sure that the triggers will be able to do their work. What
// they cannot do, the statements of the site could not either.
func checkRights(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range needed {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("the triggers would fail at %q: %w", statement, err)
		}
	}
	return nil
}

// locked keeps the tables from everybody else while f works on them.
func locked(ctx context.Context, conn *sql.Conn, tables []string, f func() error) error {
	if _, err := conn.ExecContext(ctx, "LOCK TABLES "+strings.Join(tables, " WRITE, ")+" WRITE"); err != nil {
		return fmt.Errorf("lock %s: %w", strings.Join(tables, ", "), err)
	}
	err := f()
	_, unlock := conn.ExecContext(context.WithoutCancel(ctx), "UNLOCK TABLES")
	return errors.Join(err, unlock)
}

// replaceTriggers puts the wanted triggers in the place of those that are there,
// and these back when it fails. It is over in a moment, and not to be interrupted
// in the middle.
func replaceTriggers(ctx context.Context, conn *sql.Conn, present, want []trigger) error {
	ctx = context.WithoutCancel(ctx)
	if err := swap(ctx, conn, slices.Concat(present, want), want); err != nil {
		if undo := putBack(ctx, conn, want, present); undo != nil {
			return fmt.Errorf("%w; and the triggers of before could not be put back, so that changes go unnoticed now: %w", err, undo)
		}
		return err
	}
	return nil
}

// swap drops the old triggers, those that exist, and makes the others.
func swap(ctx context.Context, conn *sql.Conn, old, others []trigger) error {
	for _, t := range old {
		if _, err := conn.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+t.name); err != nil {
			return fmt.Errorf("drop trigger %s: %w", t.name, err)
		}
	}
	for _, t := range others {
		if _, err := conn.ExecContext(ctx, t.statement); err != nil {
			return fmt.Errorf("make trigger %s: %w", t.name, err)
		}
	}
	return nil
}

// putBack makes the triggers of before. What cannot be dropped was not made
// either, by somebody without the right to.
func putBack(ctx context.Context, conn *sql.Conn, failed, before []trigger) error {
	for _, t := range failed {
		_, _ = conn.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+t.name)
	}
	return swap(ctx, conn, nil, slices.DeleteFunc(before, trigger.hidden))
}

// presentTriggers are those of activityd's that are in the database. The hidden
// ones come first, so that nothing is changed before it is clear that they cannot
// be.
func presentTriggers(ctx context.Context, conn *sql.Conn) ([]trigger, error) {
	rows, err := conn.QueryContext(ctx, "SELECT trigger_name, event_object_table, action_timing, event_manipulation, action_statement"+
		" FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY COALESCE(action_statement, '') = '' DESC, trigger_name")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var present []trigger
	for rows.Next() {
		var t trigger
		var timing, event string
		var body sql.NullString
		if err := rows.Scan(&t.name, &t.table, &timing, &event, &body); err != nil {
			return nil, err
		}
		if body.String != "" {
			t.statement = fmt.Sprintf("CREATE TRIGGER %s %s %s ON %s FOR EACH ROW %s", t.name, timing, event, t.table, body.String)
		}
		if strings.HasPrefix(t.name, prefix) {
			present = append(present, t)
		}
	}
	return present, rows.Err()
}
