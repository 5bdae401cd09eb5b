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
// A site's four tables may be views, as package mapping makes them.
package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
)

// Apply makes the tables of schema.sql that are missing; with only, of these names. Tables and views
// that exist stay as they are. It may be called again, and from several hosts at once. Errors wrap the
// driver's.
func Apply(ctx context.Context, db *sql.DB, only ...string) error {
	return withSession(ctx, db, func(conn *sql.Conn) error {
		if len(only) == 0 || slices.Contains(only, "tasks") {
			if err := Compatible(ctx, conn); err != nil {
				return err
			}
		}
		for _, t := range wanted {
			if len(only) == 0 || slices.Contains(only, t.name) {
				if _, err := conn.ExecContext(ctx, t.statement); err != nil {
					return fmt.Errorf("make table %s: %w", t.name, err)
				}
			}
		}
		return nil
	})
}

// Compatible returns an error if the tables are of another version than this program's, and has the
// remedy. It ignores an error of its own query, as the caller's next statement meets it, too.
func Compatible(ctx context.Context, db mysql.Querier) error {
	if all, err := readTables(ctx, db); err == nil {
		if misfit := all.misfit(); misfit != nil {
			return errors.New(misfit.String())
		}
	}
	return nil
}

// The version of activityd's own tables is the comment of tasks: it comes with a dump, needs no table and
// no right of its own, and CREATE TABLE IF NOT EXISTS leaves it as it is.
var versionComment = regexp.MustCompile(`activityd schema (\d+)`)

// versionOf returns the version in a text; 0 if there is none.
func versionOf(text string) int {
	found := append(versionComment.FindStringSubmatch(text), "", "")
	n, _ := strconv.Atoi(found[1])
	return n
}

// misfit returns why the program cannot work on the tables; nil if it can, or if tasks is missing.
func (all tables) misfit() *Finding {
	tasks := all["tasks"]
	if tasks == nil || tasks.isView() {
		return nil
	}
	f := &Finding{Wrong: true, Table: "tasks"}
	is, needs := versionOf(tasks.row["table_comment"]), versionOf(activityd.Schema)
	f.What = fmt.Sprintf("is of schema version %d: this activityd needs version %d", is, needs)
	switch {
	case is == needs:
		return nil
	case is == 0:
		f.What, f.Do = "is not activityd's: its comment names no schema version", "give activityd another database, or this table another name"
	case is > needs:
		f.Do = "this activityd is older than the schema: run a newer one"
	default:
		own := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return siteColumns[name] != nil || all[name].isView() })
		f.Do = "start anew, as no release had that version: DROP TABLE " + strings.Join(own, ", ") + "; and then activityd schema --apply, and activityd reset"
	}
	return f
}

// databaseRow is the row of once_keys whose fence is the id of the database.
const databaseRow = " database"

// DatabaseID returns the id of the database, which is random, and made by the first process that asks. The name
// of the database is part of it. It is stored beside the sets in Redis, to tell whose they are. A copy of a database
// under the same name has the id of the original until the row is deleted.
func DatabaseID(ctx context.Context, db *sql.DB) (string, error) {
	read := func() (id string, err error) {
		err = db.QueryRowContext(ctx, "SELECT SHA2(CONCAT(fence, ' ', LOWER(DATABASE())), 224) FROM once_keys WHERE name = ?", databaseRow).Scan(&id)
		return id, err
	}
	id, err := read()
	if errors.Is(err, sql.ErrNoRows) {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		// Another process may be faster.
		if _, err := db.ExecContext(ctx, "INSERT IGNORE INTO once_keys (name, fence) VALUES (?, ?)", databaseRow, binary.BigEndian.Uint64(random[:])>>1); err != nil {
			return "", mysql.Translate(ctx, "make the id of the database", err)
		}
		id, err = read()
	}
	if err != nil {
		return "", mysql.Translate(ctx, "read the id of the database", err)
	}
	return id[:16], nil
}

// withSession runs f on a connection of its own, which waits at most 5 seconds for the lock of a table, as the
// site's statements wait behind it. The connection is closed afterwards, which releases all locks.
func withSession(ctx context.Context, db *sql.DB, f func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool does not use it again
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
