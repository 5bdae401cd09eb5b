package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-sql-driver/mysql"
)

// meaning is a set of facts about an error of the server.
type meaning uint

const (
	retryable   meaning = 1 << iota // the transaction may be run again
	unavailable                     // the server does not serve now
	noRoom                          // the server has no connection to spare
	tooSlow                         // the server interrupted the statement
	notPrepared                     // the text may work where the prepared statement did not
	rowRefused                      // the statement may work with different rows
	duplicate                       // a row has the key
	denied                          // or unknown: a right, a table, a column, or the grammar
	viewInvalid                     // the tables, columns or rights of a view are gone
	planHidden                      // EXPLAIN shows no view whose tables the user may not see
)

const (
	checkSchema = "a table or view is not as activityd needs it: `activityd schema --check` says what differs, and the remedy"
	grantRight  = "grant the user of the DSN the right to do so"
)

// known are the numbers with a meaning, which MySQL and MariaDB share except where noted.
var known = map[uint16]struct {
	is     meaning
	advice string
}{
	1020: {is: retryable},                 // MariaDB with innodb_snapshot_isolation: the row changed under the transaction
	1040: {is: noRoom},                    // max_connections
	1047: {is: unavailable | notPrepared}, // a node of Galera without a quorum; a proxy without prepared statements
	1053: {is: unavailable},               // shutdown
	1054: {denied, checkSchema},           // unknown column
	1062: {is: duplicate},
	1064: {is: denied}, // syntax
	1142: {denied, grantRight},
	1143: {denied, grantRight},
	1146: {denied, "create the missing tables with `activityd schema --apply`, or views of these names"},
	1158: {is: unavailable}, // 1158 to 1161: the network failed while the server read or wrote
	1159: {is: unavailable},
	1160: {is: unavailable},
	1161: {is: unavailable},
	1176: {advice: checkSchema},
	1203: {is: noRoom},      // max_user_connections
	1205: {is: retryable},   // lock wait timeout
	1213: {is: retryable},   // deadlock
	1226: {is: noRoom},      // max_user_connections, or the user's limits for an hour
	1227: {is: denied},      // SUPER is needed
	1243: {is: notPrepared}, // a proxy sent it to another server than PREPARE
	1290: {is: unavailable}, // a server that became read-only: the driver hides it, see rejectReadOnly
	1295: {is: notPrepared}, // not supported in the prepared statement protocol
	1345: {is: planHidden},
	1356: {viewInvalid, checkSchema},
	1364: {advice: checkSchema},                                                                                                          // an INSERT leaves out a column without a default
	1366: {is: rowRefused},                                                                                                               // above all a string whose bytes are not of its character set
	1449: {is: viewInvalid},                                                                                                              // the definer is gone
	1461: {is: notPrepared},                                                                                                              // max_prepared_stmt_count
	1615: {is: notPrepared},                                                                                                              // MySQL: the table definition cache is too small, for views above all
	1836: {is: unavailable},                                                                                                              // read-only mode
	1927: {is: unavailable},                                                                                                              // MariaDB: connection killed, also by a shutdown
	1969: {is: tooSlow},                                                                                                                  // MariaDB: max_statement_time
	3024: {is: tooSlow},                                                                                                                  // MySQL: max_execution_time
	3032: {is: unavailable},                                                                                                              // MySQL: offline_mode
	3100: {is: unavailable},                                                                                                              // MySQL: group replication cannot commit
	3101: {is: retryable},                                                                                                                // MySQL: group replication found a conflict with a transaction of another member
	3819: {is: rowRefused},                                                                                                               // MySQL: CHECK
	1467: {retryable, "if it goes on, a row has an id near 2^64: delete it, then ALTER TABLE … AUTO_INCREMENT = N, above all other ids"}, // MariaDB: also a deadlock over the lock of an AUTO_INCREMENT

	erDatabaseDenied:  {denied, "correct the name of the database in the DSN, or grant the user of the DSN the right to use it"},
	erAccessDenied:    {advice: "check user and password in the DSN; if they are right, an anonymous account ''@'localhost' may match first"},
	erUnknownDatabase: {advice: "create the database, or correct its name in the DSN"},
}

const (
	erDatabaseDenied  = 1044
	erAccessDenied    = 1045
	erUnknownDatabase = 1049
)

// ErrUnavailable is wrapped by errors of a database that cannot be reached, is shutting down, is read-only, or
// has no connection to spare; the same call may succeed later.
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
	if advice := known[numberOf(err)].advice; advice != "" {
		return fmt.Errorf("%s: %w: %s", work, err, advice)
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
	switch numberOf(err) {
	case erAccessDenied, erDatabaseDenied:
		return "access denied"
	case erUnknownDatabase:
		return "no such database"
	}
	return ""
}

// IsRetryable reports whether the server gave a transaction up in favour of another (deadlock, lock wait
// timeout), so that the whole transaction should be run again.
func IsRetryable(err error) bool { return is(err, retryable) }

// IsTooSlow reports whether the server interrupted a statement that exceeded its maximum execution time.
func IsTooSlow(err error) bool { return is(err, tooSlow) }

// IsViewInvalid reports whether a view cannot be read: its tables, its columns, its definer or the definer's
// rights are gone.
func IsViewInvalid(err error) bool { return is(err, viewInvalid) }

// IsPlanHidden reports whether EXPLAIN was refused because the user may not see the tables of a view.
func IsPlanHidden(err error) bool { return is(err, planHidden) }

// IsDeniedOrUnknown reports that the user may not run a statement, that the server does not know it, or that a
// table or column in it is missing.
func IsDeniedOrUnknown(err error) bool { return is(err, denied) }

// IsDuplicate reports whether a row was refused because another row has its key.
func IsDuplicate(err error) bool { return is(err, duplicate) }

// IsRowRefused reports whether the server refused the values of a row: a number out of range, a duplicate key, a
// constraint, an error of a trigger. The same statement may work with different rows.
func IsRowRefused(err error) bool {
	sent, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch string(sent.SQLState[:2]) {
	case "22", "23", "44", "45": // data, constraint, WITH CHECK OPTION, SIGNAL of a trigger
		return true
	}
	return is(err, rowRefused)
}

func is(err error, m meaning) bool { return known[numberOf(err)].is&m != 0 }

// numberOf returns the number of an error that the server sent, else 0.
func numberOf(err error) uint16 {
	if sent, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return sent.Number
	}
	return 0
}
