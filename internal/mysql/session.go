package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The character set and the collation of the connections. A binary collation is the same on each server, and
// compares with every collation of its character set.
const (
	charset   = "utf8mb4"
	collation = "utf8mb4_bin"
)

// fixed is a parameter of a DSN with the value that the statements rely on. No DSN may choose a different value.
type fixed struct {
	name, value string // an empty value: the parameter may not be set at all
	use         use
	server      string // begins a comment that a single kind of server reads as SQL; empty: each knows the variable
}

// use is the further use of a parameter.
type use int

const (
	set  use = 1 << iota // each new connection sets the session variable
	seen                 // each look at a session compares the variable
	both = set | seen
)

const (
	onlyMySQL   = "!80013"
	onlyMariaDB = "M!100600"
)

// parameters are the driver's, and the session variables that can change what the statements mean, lock or
// answer, and that any user may set. docs/decisions/0026-session.md has the reasons.
var parameters = []fixed{
	{name: "autocommit", value: "0", use: set},  // the change to 1 commits a transaction of init_connect
	{name: "autocommit", value: "1", use: both}, // else a connection keeps the snapshot of its first read
	{name: "completion_type", value: "'NO_CHAIN'", use: both},
	// Refuses a value that does not fit its column and a table without transactions, and leaves the grammar as it is.
	{name: "sql_mode", value: "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'", use: both},
	{name: "sql_select_limit", value: "18446744073709551615", use: both},
	{name: "sql_big_selects", value: "1", use: both},
	{name: "sql_safe_updates", value: "0", use: both},
	{name: "sql_auto_is_null", value: "0", use: both},
	{name: "sql_buffer_result", value: "0", use: both}, // else a LIMIT reads, and locks, beyond itself
	{name: "foreign_key_checks", value: "1", use: both},
	{name: "unique_checks", value: "1", use: both},
	{name: "max_sort_length", value: "1024", use: both},
	{name: "time_zone", value: "'+00:00'", use: both},
	{name: "timestamp", value: "DEFAULT", use: set}, // the clock, and not a fixed time
	{name: "use_secondary_engine", value: "OFF", use: both, server: onlyMySQL},
	{name: "query_cache_type", value: "OFF", use: both, server: onlyMariaDB},
	{name: "system_versioning_asof", value: "DEFAULT", use: both, server: onlyMariaDB},

	{name: "transaction_isolation", value: "READ-COMMITTED", use: seen, server: onlyMySQL},
	{name: "tx_isolation", value: "READ-COMMITTED", use: seen, server: onlyMariaDB},
	{name: "character_set_results", value: charset, use: seen},
	{name: "collation_connection", value: collation, use: seen},

	{name: "character_set_client", value: charset},
	{name: "character_set_connection", value: charset},
	{name: "transaction_read_only", value: "OFF"},
	{name: "tx_read_only", value: "OFF"},
	{name: "max_join_size", value: "18446744073709551615"},
	{name: "insert_id"},
	{name: "wsrep_dirty_reads", value: "OFF"},

	{name: "interpolateParams", value: "true"}, // a query is a round trip instead of three
	{name: "clientFoundRows", value: "true"},   // an UPDATE counts the rows that it matched
	{name: "multiStatements", value: "false"},
	{name: "rejectReadOnly", value: "true"}, // a connection whose server refuses a write as read-only is closed
	{name: "charset", value: charset},
	{name: "collation", value: collation},
	{name: "strict"}, // the driver panics
}

// fixedValue returns the value of a parameter. The driver's names are case-sensitive, and names of variables are not.
func fixedValue(name string) (known, value string) {
	for _, p := range slices.Backward(parameters) { // the last autocommit
		if p.name == name || p.name == strings.ToLower(name) {
			return p.name, strings.Trim(p.value, "'")
		}
	}
	return "", ""
}

// list writes a part of a statement, behind a comma, for each parameter of a use.
func list(use use, format func(name, value string) string) string {
	var text strings.Builder
	for _, p := range parameters {
		switch part := ", " + format(p.name, p.value); {
		case p.use&use == 0:
		case p.server != "": // a comment for servers of a different kind
			fmt.Fprintf(&text, " /*%s %s */", p.server, part)
		default:
			text.WriteString(part)
		}
	}
	return text.String()
}

// setUp is sent once on each new connection, behind the parameters of the DSN and the server's init_connect, so
// that it wins. No other statement of activityd changes a session for good: the pool uses a connection again as it is.
var setUp = []string{
	// The variables have other names in older MariaDB. To ask for READ COMMITTED in each transaction would cost a
	// round trip, and a statement alone that only reads sees the same by both levels. See conn.BeginTx.
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	"SET " + strings.TrimPrefix(list(set, func(name, value string) string { return name + " = " + value }), ", "),
}

// askSession asks a server for its role, for the session, and for the variables that are not as setUp sets them. A
// variable may be a number or a word: in later versions of MariaDB read_only is an enumeration.
var askSession = "SELECT CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND CAST(@@global.innodb_read_only AS CHAR) IN ('0', 'OFF')," +
	" @@global.server_id, CONNECTION_ID(), CONCAT_WS(' '" + list(seen, func(name, value string) string {
	if _, err := strconv.ParseUint(value, 10, 64); err != nil {
		value = "'" + strings.Trim(value, "'") + "'"
	}
	return "IF(@@session." + name + " <=> " + value + ", NULL, '" + name + "')"
}) + ")"

// session is the server's side of a connection.
type session struct{ server, id string }

var (
	errReadOnly = errors.New("the server is read-only, as a replica is: the DSN must lead to the primary")
	// errShared is wrapped by the errors about a session that is not the connection's own.
	errShared = errors.New("a proxy shares sessions among connections: it must give each connection of activityd one of its own")
)

// ask returns the session of a connection. A server that is read-only is an error, and so is a session that is not set
// up.
func ask(ctx context.Context, conn driver.QueryerContext) (is session, err error) {
	rows, err := conn.QueryContext(ctx, askSession, nil)
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, 4)
	if err := rows.Next(row); err != nil {
		return is, err
	}
	var text [4]string
	for i, value := range row {
		text[i] = fmt.Sprint(value)
		if raw, ok := value.([]byte); ok {
			text[i] = string(raw)
		}
	}
	switch is = (session{text[1], text[2]}); {
	case text[0] != "1":
		return is, errReadOnly
	case text[3] != "":
		return is, fmt.Errorf("%w: it lost what was set: %s", errShared, text[3])
	}
	return is, nil
}

// checkAfter returns an error unless the session is the same as before.
func (is session) checkAfter(before session) error {
	if is.id != before.id {
		return fmt.Errorf("%w: CONNECTION_ID() was %s, and is %s", errShared, before.id, is.id)
	}
	return nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkParameters refuses a DSN that contradicts a fixed parameter. Errors quote nothing of the DSN: see errUnreadable.
func checkParameters(dsn string) error {
	_, query, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, assigned := strings.Cut(parameter, "=")
		if !assigned { // the driver ignores it, too
			continue
		}
		if !variableName.MatchString(name) {
			return fmt.Errorf("%w: a parameter is none of the driver's and no plain name of a session variable: want name=value, with names such as wait_timeout", ErrDSN)
		}
		known, want := fixedValue(name)
		if known == "" {
			continue
		}
		if value, err := url.QueryUnescape(value); err != nil || want == "" || plain(value) != plain(want) {
			return fmt.Errorf("%w: parameter %s: activityd relies on a value of its own: leave it out", ErrDSN, known)
		}
	}
	return nil
}

// plain returns the usual spelling of a value.
func plain(value string) string {
	switch value = strings.ToLower(strings.Trim(value, `'"`)); value {
	case "on", "true":
		return "1"
	case "off", "false":
		return "0"
	}
	return value
}
