package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
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

var (
	spaces     = regexp.MustCompile(`\s+`)
	intoQueues = regexp.MustCompile("INSERT INTO `.+?`\\.tasks ")
)

// text returns the statement of a trigger in a form that is the same for each database of
// the queue, and whichever client made it.
func (t trigger) text() string {
	return intoQueues.ReplaceAllLiteralString(strings.TrimSpace(spaces.ReplaceAllLiteralString(t.statement, " ")), insertTask)
}

// insertTask begins the statements of triggers.sql that insert tasks.
const insertTask = "INSERT INTO tasks "

// Triggers returns triggers.sql for a queue in another database of the same server, which
// has this name; empty: in the database of the triggers.
func Triggers(queue string) string {
	if queue == "" {
		return activityd.Triggers
	}
	return strings.ReplaceAll(activityd.Triggers, insertTask, "INSERT INTO "+quoted(queue)+".tasks ")
}

// quoted returns a name as an identifier.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// wantedTriggers returns those of triggers.sql, as [Triggers] does.
func wantedTriggers(queue string) (list []trigger) {
	for _, found := range createTrigger.FindAllStringSubmatch(Triggers(queue), -1) {
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
//
// The tasks go to queue, which is db or another database of its server: a trigger cannot
// reach any other.
func InstallTriggers(ctx context.Context, db, queue *sql.DB) (int, error) {
	apart := ""
	if queue != db {
		var err error
		if apart, err = besideOn(ctx, db, queue); err != nil {
			return 0, err
		}
	}
	want := wantedTriggers(apart)
	err := withSession(ctx, db, func(conn *sql.Conn) error {
		tables := tablesUnder(want)
		if apart == "" {
			tables = append([]string{"tasks"}, tables...)
		}
		if err := checkTables(ctx, conn, tables); err != nil {
			return err
		}
		if err := checkRights(ctx, conn, apart); err != nil {
			return err
		}
		present, err := presentTriggers(ctx, conn)
		if err != nil {
			return err
		}
		tables = tablesUnder(slices.Concat(want, present))
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
		return swap(context.WithoutCancel(ctx), conn, slices.Concat(present, wantedTriggers("")), nil)
	})
	return removed, advise(err)
}

// besideOn returns the name of the queue's database, which must be on the server of db.
func besideOn(ctx context.Context, db, queue *sql.DB) (name string, err error) {
	same, err := sameServer(ctx, db, queue)
	if err == nil && !same {
		err = errors.New("the queue is on another server, which triggers cannot reach: have the site enqueue its tasks after each commit" +
			" (POST /v1/tasks, the stream, or its own INSERT there): docs/servers.md")
	}
	if err == nil {
		err = queue.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name)
	}
	return name, err
}

// sameServer reports whether two databases are on one server: then a lock that is taken
// through one is seen through the other.
func sameServer(ctx context.Context, db, other *sql.DB) (same bool, err error) {
	name := "activityd " + rand.Text()
	err = withSession(ctx, db, func(conn *sql.Conn) error {
		var got, holder sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil {
			return err
		}
		err := other.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&holder)
		same = got.Int64 == 1 && holder.Valid
		return err
	})
	return same, err
}

// SameDatabase reports whether db and other are one database, however they are addressed: also
// by two servers of a Galera cluster or of a replication group, each of which has its own locks.
func SameDatabase(ctx context.Context, db, other *sql.DB) (bool, error) {
	var names [2]string
	for i, one := range []*sql.DB{db, other} {
		if err := one.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&names[i]); err != nil {
			return false, err
		}
	}
	if names[0] != names[1] {
		return false, nil
	}
	var clusters [2]string
	for i, one := range []*sql.DB{db, other} {
		var err error
		if clusters[i], err = clusterOf(ctx, one); err != nil {
			return false, err
		}
	}
	if sameCluster(clusters[0], clusters[1]) {
		return true, nil
	}
	return sameServer(ctx, db, other)
}

// clusterOf returns the id of the cluster of which all servers have the same tables, empty or
// zeros if the server is in none.
func clusterOf(ctx context.Context, db *sql.DB) (id string, err error) {
	for _, show := range []string{"SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'", "SHOW GLOBAL VARIABLES LIKE 'group_replication_group_name'"} {
		var name string
		if err := db.QueryRowContext(ctx, show).Scan(&name, &id); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return "", err
		}
		if id != "" {
			break
		}
	}
	return id, nil
}

// sameCluster reports whether two ids are those of one cluster.
func sameCluster(id, other string) bool { return id == other && strings.Trim(id, "0-") != "" }

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
func checkRights(ctx context.Context, conn *sql.Conn, queue string) error {
	tasks := "tasks"
	if queue != "" {
		tasks = quoted(queue) + ".tasks"
	}
	for _, statement := range []string{
		"UPDATE users SET last_upload = last_upload WHERE FALSE",
		"SELECT id FROM users WHERE FALSE FOR UPDATE",
		"SELECT user_id, contact_id FROM contacts WHERE FALSE",
		"SELECT owner_id, visibility, date_upload FROM photos WHERE FALSE",
		"INSERT INTO " + tasks + " (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
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
