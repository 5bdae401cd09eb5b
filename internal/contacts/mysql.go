package contacts

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MySQL answers from the tables of schema.sql, or from views of the same names,
// in MySQL 8.0 or MariaDB 10.6 and later. Each method but [MySQL.Walk],
// [MySQL.Ranking] and [MySQL.TopContacts] is one statement, so that its answer
// holds at one instant; the first two are one transaction to the same end.
//
// The statements that are asked most are prepared on each connection that asks
// them, and stay so until it is closed.
//
// Its methods are safe for concurrent use. When they fail, the error wraps
// [mysql.ErrUnavailable] if the server could not be reached or had no capacity, or the
// error of the context if that ended first.
type MySQL struct {
	db       *sql.DB
	prepared *mysql.Prepared
	chunks   chunking
	// unhinted: the key followers was asked for, and is not there.
	unhinted atomic.Bool
}

// NewMySQL returns a store over db, which should come from [mysql.Open]: without
// the settings made there each query costs three round trips instead of one. One
// store for each db is enough: what it prepares on db's connections is used by it
// alone. The caller closes db, and nothing else.
func NewMySQL(db *sql.DB) *MySQL {
	return &MySQL{db: db, prepared: mysql.NewPrepared(db), chunks: defaultChunking}
}

// Ping makes sure that the server can be reached and accepts our credentials.
func (m *MySQL) Ping(ctx context.Context) error {
	return mysql.Translate(ctx, "reaching the database", m.db.PingContext(ctx))
}

// querier is what *sql.DB, *sql.Tx and what is prepared have in common: the walk
// asks the same questions as the single methods, but inside one transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// statement is a query's text with its arguments.
type statement struct {
	text string
	args []any
}

// collect runs st and scans each of its rows into a T. what names the work, for
// the error.
func collect[T any](
	ctx context.Context, q querier, what string, st statement, scan func(*sql.Rows, *T) error,
) ([]T, error) {
	var all []T
	var one, zero T // one for all rows: it escapes
	err := each(ctx, q, what, st, func(rows *sql.Rows) error {
		one = zero
		err := scan(rows, &one)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// each runs st and has each of its rows scanned, while the server sends them. what
// names the work, for the error.
func each(ctx context.Context, q querier, what string, st statement, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, st.text, st.args...)
	if err != nil {
		return mysql.Translate(ctx, what, err)
	}
	defer func() { _ = rows.Close() }() // what it could report, Err has reported
	for rows.Next() {
		if err := scan(rows); err != nil {
			return mysql.Translate(ctx, what, err)
		}
	}
	return mysql.Translate(ctx, what, rows.Err())
}

func scanContact(rows *sql.Rows, c *Contact) error {
	return rows.Scan((*number)(&c.ID), (*number)(&c.LastUpload))
}

// idList writes ids as a JSON array of numbers, for JSON_TABLE. A list of many
// ids is passed this way and not as IN (…) because JSON_TABLE can be made the
// driving table: every id is then one lookup by key. With IN the optimizer is
// free to read all contacts of a member instead, and does.
//
// The result is a string because the driver marks a []byte as binary, which
// MySQL does not take for JSON.
func idList(ids []member.ID) string {
	plain := make([]uint64, len(ids))
	for i, id := range ids {
		plain[i] = uint64(id)
	}
	return mustJSON(plain)
}

// mustJSON is for slices of plain numbers, which always can be encoded.
func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("contacts: encoding %T: %v", v, err))
	}
	return string(text)
}

// requireMember returns [ErrNoMember] unless id has a users row.
func requireMember(ctx context.Context, q querier, id member.ID) error {
	st := statement{`SELECT id, 0 FROM users WHERE id = ?`, []any{id}}
	found, err := collect(ctx, q, fmt.Sprintf("looking up member %d", id), st, scanContact)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return noMember(id)
	}
	return nil
}

func noMember(id member.ID) error { return fmt.Errorf("%w: %d", ErrNoMember, id) }
