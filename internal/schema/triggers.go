package schema

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd"
)

// createTrigger finds the statements of triggers.sql that make a trigger.
var createTrigger = regexp.MustCompile(`(?ms)^(CREATE TRIGGER (\w+) \w+ \w+ ON (\w+) FOR EACH ROW$.*?)//$`)

// trigger exists, or is to be made.
type trigger struct {
	name, table string
	statement   string // makes it; empty: hidden from this user, which may neither make nor drop it
}

var spaces = regexp.MustCompile(`\s+`)

// text returns the statement of a trigger in a form that is the same whichever client made it.
func (t trigger) text() string {
	return strings.TrimSpace(spaces.ReplaceAllLiteralString(t.statement, " "))
}

// wantedTriggers returns those of triggers.sql.
func wantedTriggers() (list []trigger) {
	for _, found := range createTrigger.FindAllStringSubmatch(activityd.Triggers, -1) {
		list = append(list, trigger{found[2], found[3], found[1]})
	}
	return list
}

// tablesUnder returns the tables of triggers, sorted.
func tablesUnder(triggers []trigger) []string {
	var tables []string
	for _, t := range triggers {
		tables = append(tables, t.table)
	}
	return slices.Compact(slices.Sorted(slices.Values(tables)))
}

// InstallTriggers makes the triggers of triggers.sql in the database of db, in
// place of activityd's that exist, and returns their number. Other triggers are left
// alone. It needs the rights to lock the tables and to make triggers, and those that the
// triggers need when they run, which they do with the rights of db's user. db should come
// from mysql.Open: triggers keep the sql_mode and the character set of the connection
// that makes them.
//
// It changes nothing unless all can be made: the tables are locked, so that no
// change of the site's is missed while old triggers are replaced, and after an error the
// old ones are made again. It waits at most 5 seconds for the locks, as the site's
// statements wait behind it. Errors wrap those of the driver.
func InstallTriggers(ctx context.Context, db *sql.DB) (int, error) {
	want := wantedTriggers()
	err := withSession(ctx, db, func(conn *sql.Conn) error {
		if err := checkTables(ctx, conn, append([]string{"tasks"}, tablesUnder(want)...)); err != nil {
			return err
		}
		if err := checkRights(ctx, conn); err != nil {
			return err
		}
		present, err := presentTriggers(ctx, conn)
		if err != nil {
			return err
		}
		tables := tablesUnder(slices.Concat(want, present))
		if _, err := conn.ExecContext(ctx, "LOCK TABLES "+strings.Join(tables, " WRITE, ")+" WRITE"); err != nil {
			return fmt.Errorf("lock %s: %w", strings.Join(tables, ", "), err)
		}
		return replaceTriggers(context.WithoutCancel(ctx), conn, present, want)
	})
	return len(want), advise(err)
}

// RemoveTriggers drops all triggers of activityd's in the database of db, and
// returns their number. After an error some may be left; it is safe to call again.
func RemoveTriggers(ctx context.Context, db *sql.DB) (removed int, err error) {
	err = withSession(ctx, db, func(conn *sql.Conn) error {
		present, err := presentTriggers(ctx, conn)
		if err != nil {
			return err
		}
		removed = len(present)
		// A user that may not make triggers does not see them either. Dropping those
		// of triggers.sql, seen or not, fails with the right that is missing.
		return swap(context.WithoutCancel(ctx), conn, slices.Concat(present, wantedTriggers()), nil)
	})
	return removed, advise(err)
}

// checkTables refuses a database in which one of the tables is missing, or is a view.
func checkTables(ctx context.Context, conn *sql.Conn, tables []string) error {
	c := &checker{db: conn}
	if err := c.read(ctx); err != nil {
		return err
	}
	for _, name := range tables {
		switch have := c.tables[name]; {
		case have == nil:
			return fmt.Errorf("there is no table %s that this user can see: `activityd schema --apply` makes it", name)
		case have.isView():
			return fmt.Errorf("%s is a view, on which there are no triggers: make triggers on the tables beneath it,"+
				" after the pattern of `activityd schema --triggers`, or insert the tasks in the site's own transactions", name)
		}
	}
	return nil
}

// checkRights runs statements that change nothing, and fail where a trigger would: the
// site's statements would fail with it.
func checkRights(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range []string{
		"UPDATE users SET last_upload = last_upload WHERE FALSE",
		"SELECT id FROM users WHERE FALSE FOR UPDATE",
		"SELECT user_id, contact_id FROM contacts WHERE FALSE",
		"SELECT owner_id, visibility, date_upload FROM photos WHERE FALSE",
		"INSERT INTO tasks (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("the triggers would fail at %q: %w", statement, err)
		}
	}
	return nil
}

// replaceTriggers replaces the present triggers by those that are wanted, and makes the
// present ones again if that fails. ctx must not end in the middle.
func replaceTriggers(ctx context.Context, conn *sql.Conn, present, want []trigger) error {
	err := swap(ctx, conn, slices.Concat(present, want), want)
	if err == nil {
		return nil
	}
	for _, t := range want { // what this user cannot drop, it did not make either
		_, _ = conn.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+t.name)
	}
	visible := slices.DeleteFunc(present, func(t trigger) bool { return t.statement == "" })
	if undo := swap(ctx, conn, nil, visible); undo != nil {
		return fmt.Errorf("%w; and the previous triggers could not be restored: changes go unnoticed now: %w", err, undo)
	}
	return err
}

// swap drops the old triggers, as far as they exist, and makes the others.
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

// presentTriggers returns activityd's triggers in the database, the hidden ones first, so
// that nothing is changed if they cannot be dropped.
func presentTriggers(ctx context.Context, db querier) (present []trigger, err error) {
	list, err := rowsOf(ctx, db, "SELECT trigger_name, event_object_table, action_timing, event_manipulation, action_statement"+
		" FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY COALESCE(action_statement, '') = '' DESC, trigger_name")
	for _, r := range list {
		t := trigger{name: r["trigger_name"], table: r["event_object_table"]}
		if body := r["action_statement"]; body != "" {
			t.statement = fmt.Sprintf("CREATE TRIGGER %s %s %s ON %s FOR EACH ROW %s", t.name, r["action_timing"], r["event_manipulation"], t.table, body)
		}
		if strings.HasPrefix(t.name, "activityd_") {
			present = append(present, t)
		}
	}
	return present, err
}
