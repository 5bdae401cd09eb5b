package contacts

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MySQL answers from the tables of schema.sql, or from views of the same names,
// in MySQL 8.0 or MariaDB 10.6 and later. An answer holds at one instant: it is a
// statement, or a transaction ([MySQL.Walk]), or a statement for each part of a long
// list ([MySQL.TopContacts], [MySQL.FollowerPages]).
//
// The most frequent statements are prepared on each connection that runs them, and
// stay so until it is closed.
//
// Its methods are safe for concurrent use. When they fail, the error wraps
// [mysql.ErrUnavailable] if the server could not be reached or had no capacity, or the
// error of the context if that ended first.
type MySQL struct {
	db       *sql.DB
	prepared *mysql.Prepared
	chunks   chunking
}

// NewMySQL returns a store over db, best from [mysql.Open]: without
// the settings made there each query costs three round trips instead of a single trip. A store
// for each db is enough, as each prepares its own statements. The caller closes db; the
// store needs no closing.
func NewMySQL(db *sql.DB) *MySQL {
	return &MySQL{db: db, prepared: mysql.NewPrepared(db), chunks: defaultChunking}
}

// querier is implemented by *sql.DB, *sql.Tx and [mysql.Prepared]: the walk runs the
// statements of the single methods inside a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect runs a query and scans each of its rows into a T. work is for the error.
func collect[T any](
	ctx context.Context, q querier, work string, scan func(*sql.Rows, *T) error, query string, args ...any,
) ([]T, error) {
	var all []T
	var row, zero T // for all rows: it escapes
	err := each(ctx, q, work, func(rows *sql.Rows) error {
		row = zero
		err := scan(rows, &row)
		all = append(all, row)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// lookUp asks about a list of n things, as JSON, by a single statement, and scans each row into a key and a value. work
// has a place for n.
func lookUp[K comparable, V any](
	ctx context.Context, q querier, n int, work string, scan func(*sql.Rows, *K, *V) error, query, list string,
) (map[K]V, error) {
	found := make(map[K]V, n)
	if n == 0 {
		return found, nil
	}
	err := each(ctx, q, fmt.Sprintf(work, n), func(rows *sql.Rows) error {
		var key K
		var value V
		err := scan(rows, &key, &value)
		found[key] = value
		return err
	}, query, list)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// each runs a query and scans each of its rows while the server sends them.
func each(ctx context.Context, q querier, work string, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return mysql.Translate(ctx, work, err)
	}
	defer func() { _ = rows.Close() }() // Err has reported before
	for rows.Next() {
		if err := scan(rows); err != nil {
			return mysql.Translate(ctx, work, err)
		}
	}
	return mysql.Translate(ctx, work, rows.Err())
}

// idList writes ids as a JSON array of numbers, for JSON_TABLE. A list of many
// ids is passed this way and not as IN (…) because JSON_TABLE can be made the
// driving table: each id is then a lookup by key. With IN the optimizer is
// free to read all contacts of a member instead, and does.
//
// The result is a string because the driver marks a []byte as binary, and
// MySQL takes no binary text for JSON.
func idList(ids []member.ID) string {
	plain := make([]uint64, len(ids))
	for i, id := range ids {
		plain[i] = uint64(id)
	}
	return mustJSON(plain)
}

// idTable is a table with the column id, of the list that idList wrote.
const idTable = `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$'))`

// mustJSON encodes a slice of numbers: it cannot fail.
func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("contacts: encoding %T: %v", v, err))
	}
	return string(text)
}

// requireMember returns [ErrNoMember] unless id has a users row.
func requireMember(ctx context.Context, q querier, id member.ID) error {
	found, err := collect(ctx, q, fmt.Sprintf("looking up member %d", id), scanID, `SELECT id FROM users WHERE id = ?`, id)
	if err == nil && len(found) == 0 {
		return noMember(id)
	}
	return err
}

func scanID(rows *sql.Rows, id *member.ID) error { return rows.Scan((*number)(id)) }

func noMember(id member.ID) error { return fmt.Errorf("%w: %d", ErrNoMember, id) }

// number is what an unsigned integer is scanned into, by a conversion of the
// pointer to it. Without it database/sql writes each number as text and reads it
// again. Below 0 is 0: a site's columns may be signed, and a date before 1970, or -1 of
// a conversion that failed, must fail no answer.
type number uint64

// Scan implements [sql.Scanner].
func (n *number) Scan(value any) (err error) {
	switch v := value.(type) {
	case int64:
		*n = number(max(0, v))
	case uint64:
		*n = number(v)
	case []byte: // how the driver returns what no int64 can hold
		return n.parse(string(v))
	case string:
		return n.parse(v)
	default:
		return fmt.Errorf("%v (%T): want a number", value, value)
	}
	return nil
}

func (n *number) parse(text string) error {
	if strings.HasPrefix(text, "-") {
		below, err := strconv.ParseInt(text, 10, 64)
		*n = number(max(0, below))
		return err
	}
	parsed, err := strconv.ParseUint(text, 10, 64)
	*n = number(parsed)
	return err
}
