// Package schema makes and checks the tables of schema.sql, and installs the triggers of triggers.sql.
//
// It promises to an operator:
//
//   - [Apply] makes what is missing and changes nothing that is there. Tables of another version are
//     refused with the statement that removes them: nothing was released that a migration could serve.
//   - [Check] finds what makes tasks or answers fail, lost or false, or shows a private photo, before a
//     process works on it. Each finding has its remedy. It changes nothing, and reads no row.
//   - [Triggers] that cannot all be made leave those that are there, and no change is missed between two versions.
//
// A site's four tables may be views. Which views, package mapping says.
package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
)

// Tables returns the names of the tables of schema.sql.
func Tables() (names []string) {
	for _, t := range wanted {
		names = append(names, t.name)
	}
	return names
}

// Apply makes the tables of schema.sql that are missing, or those of them that are named. Tables and views
// that exist stay as they are. It may be called again, and from several hosts at once. Errors wrap those
// of the driver.
func Apply(ctx context.Context, db *sql.DB, only ...string) error {
	return withSession(ctx, db, func(conn *sql.Conn) error {
		if len(only) == 0 || slices.Contains(only, "tasks") {
			if err := Compatible(ctx, conn); err != nil {
				return err
			}
		}
		for _, t := range wanted {
			if len(only) > 0 && !slices.Contains(only, t.name) {
				continue
			}
			if _, err := conn.ExecContext(ctx, t.statement); err != nil {
				return fmt.Errorf("make table %s: %w", t.name, err)
			}
		}
		return nil
	})
}

// The version of activityd's own tables is the comment of tasks: it comes with a dump, needs no table and
// no right of its own, and CREATE TABLE IF NOT EXISTS leaves it as it is.
var versionComment = regexp.MustCompile(`activityd schema (\d+)`)

// versionOf returns the version in a text; 0 if there is none.
func versionOf(text string) int {
	found := versionComment.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// Compatible returns an error if the tables are of another version than this program's, and says what to
// do. It ignores an error of its own query, as the caller's next statement meets it, too.
func Compatible(ctx context.Context, db mysql.Querier) error {
	misfit, err := misfit(ctx, db)
	if err == nil && misfit != nil {
		return errors.New(misfit.String())
	}
	return nil
}

// misfit returns why the program cannot work on the tables of a database; nil if it can, or if there are none.
func misfit(ctx context.Context, db mysql.Querier) (*Finding, error) {
	list, err := rowsOf(ctx, db, "SELECT table_name, table_comment FROM information_schema.tables WHERE "+ofOurs()+" AND table_type <> 'VIEW' ORDER BY table_name")
	if err != nil {
		return nil, err
	}
	var own []string
	is, there := 0, false
	for _, r := range list {
		if r["table_name"] == "tasks" {
			is, there = versionOf(r["table_comment"]), true
		}
		if siteColumns[r["table_name"]] == nil {
			own = append(own, r["table_name"])
		}
	}
	needs := versionOf(activityd.Schema)
	f := &Finding{Wrong: true, Table: "tasks", What: fmt.Sprintf("is of schema version %d: this activityd needs version %d", is, needs)}
	switch {
	case !there || is == needs:
		return nil, nil
	case is > needs:
		f.Do = "this activityd is older than the schema: run a newer one"
	case is == 0:
		f.What = "is not activityd's: its comment names no schema version"
		f.Do = "give activityd another database, or this table another name"
	default:
		f.Do = "start anew, as no release had that version: DROP TABLE " + strings.Join(own, ", ") + "; and then activityd schema --apply, and activityd reset"
	}
	return f, nil
}

// withSession runs f on a connection of its own, which waits at most 5 seconds for the lock of a table, as the
// site's statements wait behind it. The connection is closed afterwards, which releases all locks.
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

// Quote returns a name as an identifier of SQL, in backquotes.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Text returns a string as a literal of SQL.
func Text(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'" }

// row is a row of a result, as [mysql.ByName] has it.
type row = map[string]string

func rowsOf(ctx context.Context, db mysql.Querier, query string) ([]row, error) {
	return mysql.Select(ctx, db, mysql.ByName, query)
}
