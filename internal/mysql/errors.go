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

// The numbers of server errors that have a meaning here. They are the same in MySQL and
// MariaDB, except where noted.
const (
	erRecordChanged    = 1020 // MariaDB with innodb_snapshot_isolation: the row changed under the transaction
	erTooManyConns     = 1040
	erAccessDeniedDB   = 1044
	erAccessDenied     = 1045
	erUnknownCommand   = 1047 // of a proxy without prepared statements; of a node of Galera without a quorum, for all statements
	erUnknownDatabase  = 1049
	erShutdown         = 1053
	erUnknownColumn    = 1054
	erDuplicate        = 1062
	erSyntax           = 1064
	erTableDenied      = 1142
	erColumnDenied     = 1143
	erNoSuchTable      = 1146
	erNetRead          = 1158
	erNetReadTimeout   = 1159
	erNetWrite         = 1160
	erNetWriteTimeout  = 1161
	erNoSuchKey        = 1176
	erUserConns        = 1203
	erLockWait         = 1205
	erDeadlock         = 1213
	erUserLimit        = 1226 // max_user_connections, or what a user may do in an hour
	erSuperNeeded      = 1227
	erUnknownStatement = 1243 // of a proxy that sent it to another server than the one that prepared it
	erOptionPrevents   = 1290 // a server that was made read-only, as after a failover: the driver hides it, see rejectReadOnly
	erNotPreparable    = 1295
	erViewNoExplain    = 1345 // the plan of a view is hidden from users without rights to its tables
	erViewInvalid      = 1356 // its tables or columns are gone, or the rights of its definer
	erNoDefault        = 1364 // of a column that an INSERT leaves out
	erWrongValue       = 1366 // of a string whose bytes are none of its character set, above all
	erNoDefiner        = 1449 // the definer of a view is gone
	erTooManyPrepared  = 1461 // max_prepared_stmt_count
	erAutoIncrement    = 1467 // MariaDB: also what a deadlock over the lock of an AUTO_INCREMENT is called
	erPrepareAgain     = 1615 // MySQL: the table definitions do not fit into its cache, those of views above all
	erReadOnlyMode     = 1836
	erConnectionKilled = 1927 // MariaDB: also what a shutdown does to running statements
	erStatementTimeout = 1969 // MariaDB: max_statement_time
	erQueryTimeout     = 3024 // MySQL: max_execution_time
	erOfflineMode      = 3032 // MySQL: offline_mode
	erReplicationHook  = 3100 // MySQL: group replication cannot commit
	erRolledBack       = 3101 // MySQL: group replication found a conflict with another member's transaction
	erCheckViolated    = 3819 // MySQL: CHECK
)

// ErrUnavailable is wrapped by errors of a database that cannot be reached, is
// shutting down, is read-only, or has no connection to spare; the same call may
// succeed later.
var ErrUnavailable = errors.New("database unavailable")

// ErrBusy is the [ErrUnavailable] of a server that has no connection to spare.
var ErrBusy = fmt.Errorf("%w: too many connections", ErrUnavailable)

// Translate adds what failed to an error of the database, and turns it into one that
// callers can act on. A nil err stays nil.
//
//   - When ctx has ended, the result wraps its error and nothing else: what the driver
//     reports then is a consequence.
//   - When the server cannot be reached, is going down, is read-only or has no
//     connection to spare ([ErrBusy]), the result wraps [ErrUnavailable] and the cause.
//   - When the schema or a right is missing, the result wraps the cause and says
//     what to do.
func Translate(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	switch serverError(err) {
	case erTooManyConns, erUserConns, erUserLimit:
		return fmt.Errorf("%s: %w: %w", what, ErrBusy, err)
	}
	if isUnavailable(err) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, notOfContext(err))
	}
	if advice := advise(err); advice != "" {
		return fmt.Errorf("%s: %w: %s", what, err, advice)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Refusal says in a few words why the server refuses each connection with the DSN, such as "access
// denied"; "" for other errors. It is no outage: it lasts until a setting is mended.
func Refusal(err error) string {
	switch serverError(err) {
	case erAccessDenied, erAccessDeniedDB:
		return "access denied"
	case erUnknownDatabase:
		return "no such database"
	}
	return ""
}

// IsRetryable reports whether the server gave a transaction up in favour of another one
// (deadlock, lock wait timeout), so that the whole transaction should be run again.
func IsRetryable(err error) bool {
	switch serverError(err) {
	case erDeadlock, erLockWait, erRecordChanged, erAutoIncrement, erRolledBack:
		return true
	}
	return false
}

// IsTooSlow reports whether the server interrupted a statement that exceeded its maximum
// execution time. The same statement about fewer or other rows may work.
func IsTooSlow(err error) bool {
	n := serverError(err)
	return n == erStatementTimeout || n == erQueryTimeout
}

// IsNoSuchKey reports whether a statement named an index that is not there, as on a view.
func IsNoSuchKey(err error) bool { return serverError(err) == erNoSuchKey }

// isNotPrepared reports whether a statement was refused because it is a prepared one, so
// that its text may work.
func isNotPrepared(err error) bool {
	switch serverError(err) {
	case erUnknownCommand, erUnknownStatement, erNotPreparable, erTooManyPrepared, erPrepareAgain:
		return true
	}
	return false
}

// IsRowRefused reports whether the server refused a statement because of the values of a
// row: a number out of range, a duplicate key, a constraint, an error of a trigger. With
// other rows the same statement may work.
func IsRowRefused(err error) bool {
	sent, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch string(sent.SQLState[:2]) {
	case "22", "23", "44", "45": // data, constraint, WITH CHECK OPTION, SIGNAL of a trigger
		return true
	}
	return sent.Number == erWrongValue || sent.Number == erCheckViolated
}

// IsLockWait reports whether a statement waited too long for a lock.
func IsLockWait(err error) bool { return serverError(err) == erLockWait }

// IsViewInvalid reports whether a view cannot be read: its tables or columns are
// gone, or its definer, or the definer's rights.
func IsViewInvalid(err error) bool {
	n := serverError(err)
	return n == erViewInvalid || n == erNoDefiner
}

// IsPlanHidden reports whether EXPLAIN was refused because the statement reads a view
// whose tables the user may not see.
func IsPlanHidden(err error) bool { return serverError(err) == erViewNoExplain }

// IsDeniedOrUnknown reports that the user may not run a statement, that this version of the server
// does not know it, or that it names a table or column that there is not.
func IsDeniedOrUnknown(err error) bool {
	switch serverError(err) {
	case erAccessDeniedDB, erTableDenied, erColumnDenied, erSuperNeeded, erSyntax, erNoSuchTable, erUnknownColumn:
		return true
	}
	return false
}

// IsDuplicate reports whether a row was refused because another one has its key.
func IsDuplicate(err error) bool { return serverError(err) == erDuplicate }

func isUnavailable(err error) bool {
	switch serverError(err) {
	case erUnknownCommand, erShutdown, erOptionPrevents, erReadOnlyMode, erConnectionKilled,
		erNetRead, erNetReadTimeout, erNetWrite, erNetWriteTimeout, erOfflineMode, erReplicationHook:
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, errReadOnly) || errors.Is(err, errNoAnswer) || errors.Is(err, errShared) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func advise(err error) string {
	switch serverError(err) {
	case erNoSuchTable:
		return "create the missing tables with `activityd schema --apply`, or views of these names"
	case erUnknownDatabase:
		return "create the database, or correct its name in the DSN"
	case erAccessDenied:
		return "check user and password in the DSN; if they are right, an anonymous account ''@'localhost' may match first"
	case erUnknownColumn, erNoSuchKey, erViewInvalid, erNoDefault:
		return "a table or view is not as activityd needs it: `activityd schema --check` says what differs, and the remedy"
	case erAutoIncrement:
		return "if it goes on, a row has an id near 2^64: delete it, then ALTER TABLE … AUTO_INCREMENT = N, above all other ids"
	case erAccessDeniedDB:
		return "correct the name of the database in the DSN, or grant the user of the DSN the right to use it"
	case erTableDenied, erColumnDenied:
		return "grant the user of the DSN the right to do so"
	}
	return ""
}

// serverError returns the number of an error that the server sent, else 0.
func serverError(err error) uint16 {
	if sent, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return sent.Number
	}
	return 0
}

// notOfContext keeps a timeout of the connection from matching
// [context.DeadlineExceeded], as those of package net do: the caller's context has not
// ended.
func notOfContext(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}
