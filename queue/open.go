package queue

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"

	"github.com/activityd/activityd/internal/mysql"
)

// ErrUnavailable is wrapped by the errors of a database that cannot be reached, is shutting down, is read-only or has no connection to
// spare. The same call may succeed later.
var ErrUnavailable = mysql.ErrUnavailable

// OpenDB returns a pool of at most 32 connections to MySQL 8.0.13 or MariaDB 10.6, or later, for a [Queue]. The dsn is in the form of
// go-sql-driver/mysql: user:password@tcp(host:3306)/database. OpenDB does not connect: the first use notices a server that is down.
//
// Each connection has the session that the statements of the queue rely on: the time zone UTC, a strict sql_mode, REPEATABLE READ
// unless a transaction asks for another isolation level, and 5 seconds for row locks. It leads to the primary: after a failover the
// pool gives up connections to the server before. The server closes a connection after 30 seconds without a statement, which ends the
// transactions of a process that was stopped. Your own statements may use the pool, too.
//
// An error says what is wrong with the dsn, and never quotes it.
func OpenDB(dsn string) (*sql.DB, error) { return mysql.Open(dsn) }

// Schema has the statements that make the tables of a queue. They are safe to apply again.
//
//go:embed schema.sql
var Schema string

var createTable = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (\w+) \(.*?;\n`)

// Migrate makes the tables of a queue that are missing. It is safe to call at each start, by several processes at once. It needs the
// right to CREATE; without it, have [Schema] applied by a user who has the right, as by `activityd schema --apply --only queue`.
// It fails on tables of another version.
func Migrate(ctx context.Context, db *sql.DB) error {
	for _, statement := range createTable.FindAllStringSubmatch(Schema, -1) {
		if _, err := db.ExecContext(ctx, statement[0]); err != nil {
			return mysql.Translate(ctx, "make table "+statement[1], err)
		}
	}
	var comment string
	err := db.QueryRowContext(ctx, "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'tasks'").Scan(&comment)
	if err == nil && comment != version {
		err = fmt.Errorf("the table tasks is %q, and not %q: drop it, as no release had it, or give the queue another database", comment, version)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // the user may not see it
	}
	return mysql.Translate(ctx, "look at the version of the tables", err)
}

var version = regexp.MustCompile(`COMMENT='(activityd schema \d+)'`).FindStringSubmatch(Schema)[1]
