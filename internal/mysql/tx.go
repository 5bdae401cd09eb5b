package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// Now is the database's clock as an SQL expression: unix milliseconds. It needs the time zone that [Open] sets.
const Now = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// maxTries bounds how often a transaction is run.
const maxTries = 8

// Transact runs do in a transaction and commits it, again when the server gave the transaction up in favour of
// another ([IsRetryable]). The isolation is READ COMMITTED, which locks the rows that are changed and no gaps
// between them. work is for the error, as in [Translate].
func Transact(ctx context.Context, db *sql.DB, work string, do func(*sql.Tx) error) error {
	return again(ctx, work, func() error { return transactOnce(ctx, db, do) })
}

// again runs do, and runs it again when the server gave its transaction up.
func again(ctx context.Context, work string, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if try == maxTries || !IsRetryable(err) {
			return Translate(ctx, work, err)
		}
		if err := retry.Sleep(ctx, retry.Backoff(try, 10*time.Millisecond, time.Second)); err != nil {
			return fmt.Errorf("%s: %w", work, err)
		}
	}
}

// Exec runs a statement as a transaction of its own, again as [Transact] does. It returns the AUTO_INCREMENT value
// of the first row that the statement inserted, if any.
func Exec(ctx context.Context, db *sql.DB, work, statement string, args ...any) (last uint64, err error) {
	err = again(ctx, work, func() error {
		res, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		id, err := res.LastInsertId()
		last = uint64(id)
		return err
	})
	return last, err
}

func transactOnce(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			return errors.Join(err, undo)
		}
		return err
	}
	return tx.Commit()
}

// Marks returns n placeholders for the list of an IN: "?,?,?".
func Marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

// Args returns list as the arguments of a statement.
func Args[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// Affected returns how many rows a statement matched, whether it changed them or not.
func Affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// Querier is a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Select returns each row of a query as read reads it.
func Select[T any](ctx context.Context, q Querier, read func(*sql.Rows) (T, error), query string, args ...any) (list []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := read(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// Column reads the only column of a row, for [Select]; of type any, for the arguments of another statement.
func Column[T any](rows *sql.Rows) (value T, err error) {
	err = rows.Scan(&value)
	return value, err
}

// ByName reads a row as texts by the names of its columns in lower case, for [Select]; NULL is "".
func ByName(rows *sql.Rows) (map[string]string, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	row := make(map[string]string, len(names))
	for i, name := range names {
		row[strings.ToLower(name)] = values[i].String
	}
	return row, nil
}
