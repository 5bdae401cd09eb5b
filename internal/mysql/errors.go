package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// meaning is what the number of an error of the server says. MySQL and MariaDB share the numbers except where noted.
type meaning []uint16

var (
	// The transaction may be run again: a lock wait timeout, a deadlock (1467: over the lock of an AUTO_INCREMENT, in
	// MariaDB), a row that changed under a snapshot (1020, MariaDB), a conflict of group replication (3101, MySQL).
	retryable = meaning{1020, 1205, 1213, 1467, 3101}
	// The server does not serve now: a node of Galera without a quorum (1047), a shutdown (1053, 1927), a network that
	// failed (1158 to 1161), a server that is read-only (1290, which the driver hides; 1836), offline mode (3032), group
	// replication that cannot commit (3100).
	unavailable = meaning{1047, 1053, 1158, 1159, 1160, 1161, 1290, 1836, 1927, 3032, 3100}
	// The server has no connection to spare: max_connections, max_user_connections, the user's limits for an hour.
	noRoom = meaning{1040, 1203, 1226}
	// The server interrupted the statement: max_statement_time (MariaDB), max_execution_time (MySQL).
	tooSlow = meaning{1969, 3024}
	// The text may work where the prepared statement did not: a proxy that knows none (1047), or sent it elsewhere than
	// PREPARE (1243), the protocol (1295), max_prepared_stmt_count (1461), a small table definition cache (1615, MySQL).
	notPrepared = meaning{1047, 1243, 1295, 1461, 1615}
	// The statement may work with different rows: bytes that are not of the character set (1366), CHECK (3819, MySQL).
	rowRefused = meaning{1366, 3819}
	duplicate  = meaning{1062}
	// Denied or unknown: a right, a table, a column, or the grammar.
	denied = meaning{1044, 1054, 1064, 1142, 1143, 1146, 1227}
	// The tables, the columns, the definer of a view or the definer's rights are gone.
	viewInvalid = meaning{1356, 1449}
	planHidden  = meaning{1345} // EXPLAIN shows no view whose tables the user may not see
)

const (
	checkSchema = "a table or view is not as activityd needs it: `activityd schema --check` says what differs, and the remedy"
	grantRight  = "grant the user of the DSN the right to do so"

	erUnknownDatabase = 1049
)

// advice is the remedy, by the number.
var advice = map[uint16]string{
	1044: "correct the name of the database in the DSN, or grant the user of the DSN the right to use it",
	1045: "check user and password in the DSN; if they are right, an anonymous account ''@'localhost' may match first",
	1049: "create the database, or correct its name in the DSN",
	1054: checkSchema,
	1142: grantRight,
	1143: grantRight,
	1146: "create the missing tables with `activityd schema --apply`, or views of these names",
	1176: checkSchema,
	1356: checkSchema,
	1364: checkSchema, // an INSERT leaves out a column without a default
	1467: "if it goes on, a row has an id near 2^64: delete it, then ALTER TABLE … AUTO_INCREMENT = N, above all other ids",
}

// ErrUnavailable is the error of a database that cannot be reached, is shutting down, is read-only, or has no connection
// to spare. The same call may succeed later.
var ErrUnavailable = errors.New("database unavailable")

// ErrBusy is the [ErrUnavailable] of a server that has no connection to spare.
var ErrBusy = fmt.Errorf("%w: too many connections", ErrUnavailable)

// Translate adds the name of the work to an error of the database, and makes it one that callers can act on. A
// nil err stays nil.
//
//   - When ctx has ended, the result wraps its error alone: the driver's is a consequence.
//   - When the server is away, read-only or without a connection to spare ([ErrBusy]), the result wraps
//     [ErrUnavailable] and the cause.
//   - When a part of the schema or a right is missing, the result wraps the cause and the remedy.
func Translate(ctx context.Context, work string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", work, ctx.Err())
	case is(err, noRoom):
		return fmt.Errorf("%s: %w: %w", work, ErrBusy, err)
	case isUnavailable(err):
		// The caller's context has not ended: a timeout of package net must not match its errors.
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = errors.New(err.Error())
		}
		return fmt.Errorf("%s: %w: %w", work, ErrUnavailable, err)
	}
	if remedy := advice[numberOf(err)]; remedy != "" {
		return fmt.Errorf("%s: %w: %s", work, err, remedy)
	}
	return fmt.Errorf("%s: %w", work, err)
}

func isUnavailable(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok || is(err, unavailable) {
		return true
	}
	for _, lost := range []error{errReadOnly, errNoAnswer, errShared, driver.ErrBadConn, mysql.ErrInvalidConn, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// Refusal says in a few words why the server refuses each connection with the DSN; "" for all other errors. A
// refusal is no outage: it lasts until a setting is mended.
func Refusal(err error) string {
	return map[uint16]string{1044: "access denied", 1045: "access denied", erUnknownDatabase: "no such database"}[numberOf(err)]
}

// IsRetryable reports whether the server gave a transaction up in favour of another, so that it should be run again.
func IsRetryable(err error) bool { return is(err, retryable) }

// IsTooSlow reports whether the server interrupted a statement that exceeded its maximum execution time.
func IsTooSlow(err error) bool { return is(err, tooSlow) }

// IsViewInvalid reports whether a view cannot be read, as a part of it is gone.
func IsViewInvalid(err error) bool { return is(err, viewInvalid) }

// IsPlanHidden reports whether EXPLAIN was refused because the user may not see the tables of a view.
func IsPlanHidden(err error) bool { return is(err, planHidden) }

// IsDeniedOrUnknown reports whether a right is missing, or a table, a column or the grammar is unknown.
func IsDeniedOrUnknown(err error) bool { return is(err, denied) }

// IsDuplicate reports whether a row was refused because another row has its key.
func IsDuplicate(err error) bool { return is(err, duplicate) }

// IsRowRefused reports whether the server refused the values of a row: a number out of range, a duplicate key, a
// constraint, an error of a trigger. The same statement may work with different rows.
func IsRowRefused(err error) bool {
	sent, ok := errors.AsType[*mysql.MySQLError](err)
	// By the SQLSTATE: data, constraint, WITH CHECK OPTION, SIGNAL of a trigger.
	return ok && slices.Contains([]string{"22", "23", "44", "45"}, string(sent.SQLState[:2])) || is(err, rowRefused)
}

func is(err error, m meaning) bool { return slices.Contains(m, numberOf(err)) }

// numberOf returns the number of an error that the server sent, else 0.
func numberOf(err error) uint16 {
	if sent, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return sent.Number
	}
	return 0
}
