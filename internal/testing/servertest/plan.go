package servertest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/mysql"
)

// Statements returns the queries and changes that ask sent on the one connection of db,
// in order and with their arguments, as the server logged them. A prepared statement is
// there each time it ran. db must come from [MySQLDSN], because Statements switches on
// the server's slow query log.
//
// The connection is new, so that no pool replaces it on account of its age while ask
// runs.
func Statements(t testing.TB, db *sql.DB, ask func()) []string {
	t.Helper()
	reconnect(t, db)
	exec(t, db, "SET GLOBAL log_output = 'TABLE', GLOBAL slow_query_log = ON")
	before := connectionID(t, db)
	exec(t, db, "SET SESSION long_query_time = 0 /*M! , SESSION slow_query_log = ON */") // a session variable in MariaDB
	ask()
	statements := logged(t, db, "thread_id = "+before)
	if id := connectionID(t, db); id != before {
		t.Fatalf("servertest: connection %s was replaced by %s, whose statements were not logged", before, id)
	}
	return statements
}

// reconnect has a pool of one connection make a new connection.
func reconnect(t testing.TB, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it closes the connection
}

func connectionID(t testing.TB, db *sql.DB) string {
	t.Helper()
	return query(t, db, "SELECT CONNECTION_ID() AS id")[0]["id"]
}

// LogUser makes a user with all rights to the database of db, on a server of t's own,
// and has the server log its statements. It returns the user's name, and a function that
// returns its queries and changes so far, in order and with their arguments.
func LogUser(t testing.TB, db *sql.DB) (name string, statements func() []string) {
	t.Helper()
	database := query(t, db, "SELECT DATABASE() AS name")[0]["name"]
	exec(t, db, "CREATE USER logged@localhost")
	exec(t, db, "GRANT ALL ON "+database+".* TO logged@localhost")
	exec(t, db, "SET GLOBAL log_output = 'TABLE', GLOBAL slow_query_log = ON, GLOBAL long_query_time = 0")
	return "logged", func() []string {
		t.Helper()
		return logged(t, db, "user_host LIKE 'logged[%'")
	}
}

var explainable = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH|\()\s*\S`)

// logged returns the logged queries and changes that meet a condition, without
// the queries of the log itself, and without the pool's repeated question whether the server is
// the primary.
func logged(t testing.TB, db *sql.DB, condition string) (statements []string) {
	t.Helper()
	const slowLog = "FROM mysql.slow_log"
	for _, row := range query(t, db, "SELECT sql_text "+slowLog+" WHERE "+condition+" ORDER BY start_time") {
		text := strings.TrimSpace(row["sql_text"])
		if explainable.MatchString(text) && !strings.Contains(text, slowLog) && !strings.Contains(text, "@@global.read_only") {
			statements = append(statements, text)
		}
	}
	return statements
}

// Step is a row of EXPLAIN: how the server reads a table.
type Step struct {
	Select string // the kind of query that it belongs to
	Table  string // its alias; empty or <…> for what the query makes itself
	Access string
	Key    string // the index; empty: none
	Extra  string
}

// Stored reports whether a stored table is read: not a list among the arguments, which is JSON,
// nor a table that the query makes itself, nor one that it only adds to.
func (s Step) Stored() bool {
	return s.Table != "" && !strings.Contains(s.Extra, "json_table") && !strings.HasPrefix(s.Table, "<") && s.Select != "INSERT"
}

// Scans reports whether all rows or all entries of an index are read.
func (s Step) Scans() bool { return s.Access == "ALL" || s.Access == "index" }

// Sorts reports whether rows are put into a temporary table or sorted before the first is
// known. EXPLAIN notes it at the first table of the query: where that is a single row,
// read before the query begins, the sort is that of a derived table.
func (s Step) Sorts() bool {
	return s.Access != "const" && s.Access != "system" &&
		(strings.Contains(s.Extra, "filesort") || strings.Contains(s.Extra, "temporary"))
}

// Explain returns the plan of a statement.
func Explain(t testing.TB, db *sql.DB, statement string) (plan []Step) {
	t.Helper()
	// MySQL 9 has another default format.
	for _, row := range query(t, db, "EXPLAIN FORMAT=TRADITIONAL "+statement) {
		key, _, _ := strings.Cut(row["key"], "|") // MariaDB may filter by a second key
		plan = append(plan, Step{Select: row["select_type"], Table: row["table"], Access: row["type"], Key: key, Extra: row["Extra"]})
	}
	return plan
}

// SessionStatus returns the sum of the counters whose names are like pattern, of the one
// connection of db. Of Handler_read%, which counts the rows and index entries that were
// read, the call itself adds some dozens.
func SessionStatus(t testing.TB, db *sql.DB, pattern string) (sum int) {
	t.Helper()
	for _, row := range query(t, db, "SHOW SESSION STATUS LIKE ?", pattern) {
		n, err := strconv.Atoi(row["Value"])
		if err != nil {
			t.Fatalf("servertest: %v", err)
		}
		sum += n
	}
	return sum
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("servertest: %s: %v", statement, err)
	}
}

// query is [rowsOf] for a test.
func query(t testing.TB, db *sql.DB, text string, args ...any) []map[string]string {
	t.Helper()
	rows, err := rowsOf(t.Context(), db, text, args...)
	if err != nil {
		t.Fatalf("servertest: %v\nof %s", err, text)
	}
	return rows
}

// rowsOf returns the rows of a query, by column. NULL is empty.
func rowsOf(ctx context.Context, q mysql.Querier, text string, args ...any) (all []map[string]string, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err has the error
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		row := map[string]string{}
		for i, column := range columns {
			row[column] = values[i].String
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
