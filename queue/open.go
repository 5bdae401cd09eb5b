package queue

import (
	"context"
	"database/sql"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
)

// ErrUnavailable is wrapped by the errors of a database that cannot be reached, is shutting down, is
// read-only or has no connection to spare; the same call may succeed later.
var ErrUnavailable = mysql.ErrUnavailable

// OpenDB makes a pool of at most 32 connections to MySQL 8.0.13 or MariaDB 10.6, or later, as a [Queue] needs it. The dsn is
// that of go-sql-driver/mysql: user:password@tcp(host:3306)/database. It does not connect: a server
// that is down is noticed by the first use.
//
// Each connection has the session that the queue's statements rely on, whatever the defaults of the server are: the time
// zone UTC, a strict sql_mode, REPEATABLE READ where a transaction asks for nothing else, and 5 seconds for row locks. It
// leads to the primary: after a failover the connections to the server before are given up. A server closes it
// after 30 seconds without a statement, which ends what a process that was stopped has open. Your own statements may
// use the pool, too.
//
// An error says what is wrong with the dsn, and never quotes it.
func OpenDB(dsn string) (*sql.DB, error) { return mysql.Open(dsn) }

// Migrate makes the queue's tables, or brings those of an earlier version up to this one's. It is safe to call at
// each start, and by several processes at once, which wait for each other up to 10 seconds. It needs the rights to CREATE and
// ALTER; without them, have `activityd schema --apply` or the statements of schema.sql run by a user who has them.
func Migrate(ctx context.Context, db *sql.DB) error {
	return schema.Apply(ctx, db, "tasks", "task_leases", "parked_tasks", "paused_queues", "task_keys")
}
