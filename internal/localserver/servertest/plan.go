package servertest

import (
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Statements returns the queries and changes that ask sent on the one connection
// of db, in order and with their arguments, as the server logged them. A statement
// that was prepared is there each time it ran. db must come from [MySQLDSN]: the
// server's slow query log is switched on.
func Statements(t testing.TB, db *sql.DB, ask func()) []string {
	t.Helper()
	const own = "thread_id = CONNECTION_ID()"
	exec(t, db, "SET GLOBAL log_output = 'TABLE', GLOBAL slow_query_log = ON")
	exec(t, db, "SET SESSION long_query_time = 0 /*M! , SESSION slow_query_log = ON */") // MariaDB's sessions have a switch each
	before := len(logged(t, db, own))
	ask()
	return slices.DeleteFunc(logged(t, db, own)[before:], isNone)
}

// LogUser makes a user with all rights to the database of db, on a server of t's own,
// and has all that it sends logged. It returns the user's name, and a function that
// returns the queries and changes so far, in order and with their arguments.
func LogUser(t testing.TB, db *sql.DB) (name string, statements func() []string) {
	t.Helper()
	var database string
	if err := db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	exec(t, db, "CREATE USER logged@localhost")
	exec(t, db, "GRANT ALL ON "+database+".* TO logged@localhost")
	exec(t, db, "SET GLOBAL log_output = 'TABLE', GLOBAL slow_query_log = ON, GLOBAL long_query_time = 0")
	return "logged", func() []string {
		t.Helper()
		return slices.DeleteFunc(logged(t, db, "user_host LIKE 'logged[%'"), isNone)
	}
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("servertest: %s: %v", statement, err)
	}
}

const slowLog = "FROM mysql.slow_log"

// isNone tells what is no query or change: the beginnings and ends of transactions,
// for one.
func isNone(statement string) bool {
	return !explainable.MatchString(statement) || strings.Contains(statement, slowLog)
}

var explainable = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH|\()\s*\S`)

// logged returns the statements that the server logged and for which a condition
// holds.
func logged(t testing.TB, db *sql.DB, condition string) (statements []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT sql_text "+slowLog+" WHERE "+condition+" ORDER BY start_time")
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	defer func() { _ = rows.Close() }() // Err says what went wrong
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatalf("servertest: %v", err)
		}
		statements = append(statements, strings.TrimSpace(text))
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return statements
}

// Step is a row of EXPLAIN: how one table is read.
type Step struct {
	Select string // the kind of query that it belongs to
	Table  string // its alias; empty or <…> for what the query makes itself
	Access string
	Key    string // the index; empty: none
	Extra  string
}

// Stored tells whether a stored table is read: not a list among the arguments, q
// by name, nor a table that the query makes itself, nor one that it only adds to.
func (s Step) Stored() bool {
	return s.Table != "" && s.Table != "q" && !strings.HasPrefix(s.Table, "<") && s.Select != "INSERT"
}

// Scans tells whether all rows or all entries of an index are read.
func (s Step) Scans() bool { return s.Access == "ALL" || s.Access == "index" }

// Sorts tells whether the rows are put into a temporary table or sorted before the
// first is known. It is noted at the first table of the query: where that is a
// single row, read before the query begins, the sort is that of a derived table.
func (s Step) Sorts() bool {
	return s.Access != "const" && s.Access != "system" &&
		(strings.Contains(s.Extra, "filesort") || strings.Contains(s.Extra, "temporary"))
}

// Explain returns the plan of a statement.
func Explain(t testing.TB, db *sql.DB, statement string) (plan []Step) {
	t.Helper()
	// The default format is another one on MySQL 9.
	rows, err := db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statement)
	if err != nil {
		t.Fatalf("servertest: %v\nof %s", err, statement)
	}
	defer func() { _ = rows.Close() }() // Err says what went wrong
	columns, err := rows.Columns()
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	of := func(column string) string { return values[slices.Index(columns, column)].String }
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			t.Fatalf("servertest: %v", err)
		}
		key, _, _ := strings.Cut(of("key"), "|") // MariaDB may filter by a second one
		plan = append(plan, Step{Select: of("select_type"), Table: of("table"), Access: of("type"), Key: key, Extra: of("Extra")})
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return plan
}

// SessionStatus adds up the counters whose names are like pattern, of the one
// connection that db has. With Handler_read% these are the rows and index entries
// that were read; to ask reads some dozens.
func SessionStatus(t testing.TB, db *sql.DB, pattern string) (sum int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE ?", pattern)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	defer func() { _ = rows.Close() }() // Err says what went wrong
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatalf("servertest: %v", err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return sum
}
