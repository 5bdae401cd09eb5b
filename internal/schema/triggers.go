package schema

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
)

// createTrigger finds the statements of triggers.sql that make a trigger.
var createTrigger = regexp.MustCompile(`(?ms)^CREATE TRIGGER (\w+) (\w+ \w+) ON (\w+) FOR EACH ROW\n(.*?)//$`)

// Trigger exists, or is to be made.
type Trigger struct {
	Database string // empty: the connection's
	Name     string
	Table    string
	When     string // as in AFTER INSERT
	Body     string // empty: hidden from this user, who may neither make nor drop it
	Origin   string // the line of a file that asks for it; empty: triggers.sql
}

// in returns a name in the database of the trigger.
func (t Trigger) in(name string) string {
	if t.Database == "" {
		return name
	}
	return Quote(t.Database) + "." + Quote(name)
}

// Statement returns the CREATE TRIGGER.
func (t Trigger) Statement() string {
	return fmt.Sprintf("CREATE TRIGGER %s %s ON %s FOR EACH ROW\n%s", t.in(t.Name), t.When, t.in(t.Table), t.Body)
}

var spaces = regexp.MustCompile(`\s+`)

// key is the trigger's name. Some servers fold the names of databases and tables: here all do.
func (t Trigger) key() string { return strings.ToLower(t.Database) + "." + t.Name }

// text returns the trigger in a form that is the same for each client that made it, and each server that shows it:
// MySQL shows a doubled quote in a string as a single quote.
func (t Trigger) text() string {
	body := strings.TrimSpace(spaces.ReplaceAllLiteralString(strings.ReplaceAll(t.Body, "''", "'"), " "))
	return t.key() + " " + t.When + " " + strings.ToLower(t.Table) + " " + body
}

// Triggers are all of activityd's on a site's tables.
type Triggers struct {
	// Databases are the tables'; none: the connection's.
	Databases []string
	List      []Trigger
	// Probes are statements that change nothing, and fail where a trigger would.
	Probes []string
	// Required: without the triggers, tables that they keep are wrong. Otherwise a site may report its changes itself.
	Required bool
}

// StandardTriggers returns the triggers of triggers.sql.
func StandardTriggers() Triggers {
	all := Triggers{Probes: []string{
		"UPDATE users SET last_upload = last_upload WHERE FALSE",
		"SELECT id FROM users WHERE FALSE FOR UPDATE",
		"SELECT user_id, contact_id FROM contacts WHERE FALSE",
		"SELECT owner_id, visibility, date_upload FROM photos WHERE FALSE",
		"INSERT INTO tasks (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
	}}
	for _, found := range createTrigger.FindAllStringSubmatch(activityd.Triggers, -1) {
		all.List = append(all.List, Trigger{Name: found[1], When: found[2], Table: found[3], Body: found[4]})
	}
	return all
}

// Install makes the triggers, in place of activityd's that exist, and leaves other triggers alone. It needs the rights
// to lock the tables and to make triggers, and the rights of the triggers, which run in the name of db's user. db should come from mysql.Open: triggers keep the sql_mode and the character set of the connection that makes
// them.
//
// The tables are locked, so that no change of the site's is missed while old triggers are replaced. Each trigger is
// made once under another name before an old trigger is dropped: a trigger that would fail changes nothing. It waits
// at most 5 seconds for the locks, as the site's statements wait behind it. Errors wrap the driver's.
func (all Triggers) Install(ctx context.Context, db *sql.DB) error {
	return all.inSession(ctx, db, func(conn *sql.Conn, present []Trigger) error {
		for _, statement := range all.Probes { // the site's statements would fail with the triggers
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("the triggers would fail at %q; activityd schema --check says what the tables lack: %w", statement, err)
			}
		}
		var tables []string
		for _, t := range slices.Concat(all.List, present) {
			if table := t.in(t.Table); !slices.ContainsFunc(tables, func(known string) bool { return strings.EqualFold(known, table) }) {
				tables = append(tables, table)
			}
		}
		slices.Sort(tables)
		if _, err := conn.ExecContext(ctx, "LOCK TABLES "+strings.Join(tables, " WRITE, ")+" WRITE"); err != nil {
			return fmt.Errorf("lock %s: %w", strings.Join(tables, ", "), err)
		}
		ctx := context.WithoutCancel(ctx) // it must not end in the middle
		for _, t := range all.List {
			t.Name += "_try"
			if err := swap(ctx, conn, nil, []Trigger{t}); err != nil {
				return fmt.Errorf("nothing is changed: %s must be a table, and this user must have the right TRIGGER on it: %w", t.Table, err)
			}
			if err := swap(ctx, conn, []Trigger{t}, nil); err != nil {
				return err
			}
		}
		return swap(ctx, conn, slices.Concat(present, all.List), all.List)
	})
}

// Remove drops all triggers of activityd's in the databases, and returns their number. After an error some may be
// left; it is safe to call again.
func (all Triggers) Remove(ctx context.Context, db *sql.DB) (removed int, err error) {
	err = all.inSession(ctx, db, func(conn *sql.Conn, present []Trigger) error {
		removed = len(present)
		// A user without the right to make triggers does not see them either: to drop all of all.List, seen or not,
		// fails with the right that is missing.
		return swap(context.WithoutCancel(ctx), conn, slices.Concat(present, all.List), nil)
	})
	return removed, err
}

// inSession runs f on a connection of its own, with the triggers that exist.
func (all Triggers) inSession(ctx context.Context, db *sql.DB, f func(*sql.Conn, []Trigger) error) error {
	err := withSession(ctx, db, func(conn *sql.Conn) error {
		present, err := all.present(ctx, conn)
		if err != nil {
			return err
		}
		return f(conn, present)
	})
	if mysql.IsRetryable(err) {
		return fmt.Errorf("%w: a long transaction uses one of the tables; try again when it is over", err)
	}
	return err
}

// swap drops the old triggers, as far as they exist, and makes the new ones.
func swap(ctx context.Context, conn *sql.Conn, old, want []Trigger) error {
	for _, t := range old {
		if _, err := conn.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+t.in(t.Name)); err != nil {
			return fmt.Errorf("drop trigger %s: %w", t.Name, err)
		}
	}
	for _, t := range want {
		if _, err := conn.ExecContext(ctx, t.Statement()); err != nil {
			return fmt.Errorf("make trigger %s: %w", t.Name, err)
		}
	}
	return nil
}

// present returns activityd's triggers in the databases. Hidden triggers come first, so that nothing is changed if
// they cannot be dropped.
func (all Triggers) present(ctx context.Context, db mysql.Querier) (present []Trigger, err error) {
	in := "DATABASE()"
	if len(all.Databases) > 0 {
		var quoted []string
		for _, name := range all.Databases {
			quoted = append(quoted, Text(name))
		}
		in = strings.Join(quoted, ", ")
	}
	list, err := rowsOf(ctx, db, "SELECT trigger_schema, trigger_name, event_object_table, action_timing, event_manipulation, action_statement"+
		" FROM information_schema.triggers WHERE trigger_schema IN ("+in+") ORDER BY COALESCE(action_statement, '') = '' DESC, trigger_name")
	for _, r := range list {
		t := Trigger{Name: r["trigger_name"], Table: r["event_object_table"], When: r["action_timing"] + " " + r["event_manipulation"], Body: r["action_statement"]}
		if len(all.Databases) > 0 {
			t.Database = r["trigger_schema"]
		}
		if strings.HasPrefix(t.Name, "activityd_") {
			present = append(present, t)
		}
	}
	return present, err
}

// Check compares the triggers that exist, as far as this user sees them, with all.List. install is the command
// that makes them. Triggers that differ from a file's are wrong. Triggers of an earlier triggers.sql are a warning, as
// the processes of a new release start before the triggers are replaced.
func (all Triggers) Check(ctx context.Context, db mysql.Querier, install string) ([]Finding, error) {
	present, err := all.present(ctx, db)
	if err != nil || len(present) == 0 && !all.Required {
		return nil, err
	}
	have, want := make(map[string]bool), make(map[string]Trigger)
	for _, t := range all.List {
		want[t.key()] = t
	}
	isFiles := len(all.Databases) > 0
	for _, t := range present {
		have[t.key()] = true
		if w := want[t.key()]; t.Body != "" && t.text() != w.text() {
			return []Finding{{isFiles, t.Table, "has the trigger " + t.Name + " as " + cmp.Or(w.Origin, "this version") + " does not make it, which may report too much or too little", install}}, nil
		}
	}
	for _, t := range all.List {
		if !have[t.key()] {
			return []Finding{{isFiles && len(present) > 0, t.Table, "has no trigger " + t.Name + " of " + cmp.Or(t.Origin, "this version") + " that this user can see: changes may go unreported", install}}, nil
		}
	}
	return nil, nil
}
