package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The character set and the collation of the connections. A binary collation does
// not depend on the server's defaults, and can be compared with any other one of
// its character set.
const (
	charset   = "utf8mb4"
	collation = "utf8mb4_bin"
)

// setting is a session variable and the value that the statements rely on.
type setting struct {
	name, value string
	only        string // begins a comment that one kind of server reads as SQL; empty: both know the variable
}

const (
	onlyMySQL   = "!80013"
	onlyMariaDB = "M!100600"
)

// settings are the session variables that can change what the statements mean,
// lock or answer, and that any user may set. docs/decisions/0026-session.md says
// what each would do, and why others are not here.
var settings = []setting{
	{"autocommit", "0", ""}, // only a change to 1 commits what init_connect may have begun
	{"autocommit", "1", ""}, // else a connection keeps the snapshot of its first read
	{"completion_type", "'NO_CHAIN'", ""},
	// Refuses a value that does not fit its column and a table in an engine without
	// transactions, and leaves the grammar as it is.
	{"sql_mode", "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'", ""},
	{"sql_select_limit", "18446744073709551615", ""},
	{"sql_big_selects", "1", ""},
	{"sql_safe_updates", "0", ""},
	{"sql_auto_is_null", "0", ""},
	{"sql_buffer_result", "0", ""}, // else a LIMIT reads, and locks, beyond itself
	{"foreign_key_checks", "1", ""},
	{"unique_checks", "1", ""},
	{"max_sort_length", "1024", ""},
	{"time_zone", "'+00:00'", ""},
	{"timestamp", "DEFAULT", ""}, // the clock, and not a fixed time
	{"use_secondary_engine", "OFF", onlyMySQL},
	{"query_cache_type", "OFF", onlyMariaDB},
	{"system_versioning_asof", "DEFAULT", onlyMariaDB},
}

// setUp is sent once on each new connection, behind the parameters of the DSN and
// the server's init_connect, so that it is applied last. No other statement of
// activityd changes a session for good: the pool uses a connection again as it is.
var setUp = []string{
	// The variables have other names in older MariaDB. Nearly all transactions want READ COMMITTED, which
	// to ask for costs a round trip; a statement alone that only reads sees the same by both. See conn.BeginTx.
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	setAll(settings),
}

// setAll sets all in one statement. To a server of the other kind a variable that it
// does not know is a comment.
func setAll(all []setting) string {
	var text strings.Builder
	text.WriteString("SET ")
	for i, s := range all {
		assignment := s.name + " = " + s.value
		if i > 0 {
			assignment = ", " + assignment
		}
		if s.only != "" {
			assignment = " /*" + s.only + " " + assignment + " */"
		}
		text.WriteString(assignment)
	}
	return text.String()
}

// askSession asks a server for its role and for what the session is.
var askSession = questions(settings)

// questions asks for all that was set, by the names of the variables, but for the clock, and for
// what the driver and setUp set besides.
func questions(all []setting) string {
	all = slices.Concat(all, []setting{
		{"transaction_isolation", "", onlyMySQL},
		{"tx_isolation", "", onlyMariaDB},
		{"character_set_results", "", ""},
		{"collation_connection", "", ""},
	})
	var text strings.Builder
	text.WriteString("SELECT @@global.read_only AS read_only, @@global.innodb_read_only AS innodb_read_only, @@global.server_id AS server_id, CONNECTION_ID() AS connection_id")
	for i, s := range all {
		if s.name == "timestamp" || slices.ContainsFunc(all[:i], func(before setting) bool { return before.name == s.name }) {
			continue
		}
		column := ", @@session." + s.name + " AS " + s.name
		if s.only != "" {
			column = " /*" + s.only + " " + column + " */"
		}
		text.WriteString(column)
	}
	return text.String()
}

// session is the server's side of a connection.
type session struct {
	server     string            // server_id
	connection string            // CONNECTION_ID()
	variables  map[string]string // by name
}

// ask returns what the session is. A server that is read-only is an error.
func ask(ctx context.Context, conn driver.QueryerContext) (is session, err error) {
	rows, err := conn.QueryContext(ctx, askSession, nil)
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err != nil {
		return is, err
	}
	is.variables = make(map[string]string, len(row))
	for i, name := range rows.Columns() {
		value := fmt.Sprint(row[i])
		if text, ok := row[i].([]byte); ok {
			value = string(text)
		}
		is.variables[name] = value
	}
	for _, name := range []string{"read_only", "innodb_read_only"} {
		if plain(is.variables[name]) != "0" { // in later versions of MariaDB an enumeration
			return is, errReadOnly
		}
	}
	is.server, is.connection = is.variables["server_id"], is.variables["connection_id"]
	return is, nil
}

// errShared is wrapped by the errors about a session that is not the connection's own.
var errShared = errors.New("a proxy shares sessions among connections: it must give each connection of activityd one of its own")

// checkAfter returns an error unless the session is the one of before, with all that was set.
func (is session) checkAfter(before session) error {
	if is.connection != before.connection {
		return fmt.Errorf("%w: CONNECTION_ID() was %s, and is %s", errShared, before.connection, is.connection)
	}
	for name, got := range is.variables {
		if want, ok := fixed[name]; ok && plain(got) != plain(want) {
			return fmt.Errorf("%w: %s was set to %s, and is %s", errShared, name, want, got)
		}
	}
	return nil
}

// sharedSession is when a session was found not to be ours, and why.
type sharedSession struct {
	at  time.Time
	err error
}

// sharedFor is how long no connection is opened after that. A proxy that is idle gives each
// connection the session that it had, and shares them under load.
const sharedFor = 10 * time.Second

// connector makes connections to the primary whose session is set up.
type connector struct {
	driver.Connector
	servers *servers
	timeout time.Duration // until the session is set up
}

// brokenHandshake is the text of the driver's error for a connection that breaks before the
// answer to the handshake is sent. The driver exports no value of it.
const brokenHandshake = "bad connection"

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	// The pool opens connections without a deadline, too, and a server that hangs accepts them.
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w within %v", errNoAnswer, c.timeout)
	}
	return conn, err
}

func (c connector) connect(ctx context.Context) (driver.Conn, error) {
	begun := time.Now()
	if found := c.servers.shared.Load(); found != nil && begun.Sub(found.at) < sharedFor {
		return nil, found.err
	}
	plain, err := c.Connector.Connect(ctx)
	if err != nil && err.Error() == brokenHandshake {
		err = fmt.Errorf("during the handshake: %w", driver.ErrBadConn)
	}
	if err != nil {
		return nil, err
	}
	ours := &conn{
		driverConn: plain.(driverConn),
		servers:    c.servers,
		seen:       begun,
		expires:    begun.Add(lifetime - rand.N(lifetime/4)),
	}
	err = ours.setUp(ctx)
	if err == nil && !c.servers.note(ours.server, begun) {
		err = errOvertaken
	}
	if err != nil {
		_ = plain.Close() // err says what matters
		return nil, err
	}
	c.servers.connections(ours.server).Inc()
	return ours, nil
}

// setUp sets the session up, and looks twice whether that is so: a proxy may send each statement
// to another session.
func (c *conn) setUp(ctx context.Context) (err error) {
	for _, text := range setUp {
		if _, err := c.ExecContext(ctx, text, nil); err != nil {
			return fmt.Errorf("setting up the session: %w", err)
		}
	}
	first, err := ask(ctx, c)
	if err != nil {
		return err
	}
	if c.session, err = ask(ctx, c); err != nil {
		return err
	}
	return c.checkAfter(first)
}

// fixed are the parameters that no DSN can choose, with the values that they have:
// those of the driver, and session variables that would override settings. A parameter
// with an empty value cannot be set at all.
var fixed = fixedParameters(map[string]string{
	"interpolateParams": "true",
	"clientFoundRows":   "true",
	"multiStatements":   "false",
	"rejectReadOnly":    "true",
	"charset":           charset,
	"collation":         collation,
	"strict":            "", // the driver panics

	"character_set_client":     charset,
	"character_set_connection": charset,
	"character_set_results":    charset,
	"collation_connection":     collation,
	"transaction_isolation":    "READ-COMMITTED",
	"tx_isolation":             "READ-COMMITTED",
	"transaction_read_only":    "OFF",
	"tx_read_only":             "OFF",
	"max_join_size":            "18446744073709551615",
	"insert_id":                "",
	"wsrep_dirty_reads":        "OFF",
})

func fixedParameters(fixed map[string]string) map[string]string {
	for _, s := range settings {
		fixed[s.name] = strings.Trim(s.value, "'")
	}
	return fixed
}

// checkParameters refuses a DSN with a parameter that contradicts fixed.
func checkParameters(dsn string) error {
	_, query, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, assigned := strings.Cut(parameter, "=")
		if !assigned { // the driver ignores it, too
			continue
		}
		if !variableName.MatchString(name) { // not quoted: see errUnreadable
			return fmt.Errorf("%w: a parameter is none of the driver's and no plain name of a session variable: want name=value, with names such as wait_timeout", ErrDSN)
		}
		known, want := fixedName(name)
		if known == "" {
			continue
		}
		value, err := url.QueryUnescape(value)
		if err != nil || want == "" || plain(value) != plain(want) {
			return fmt.Errorf("%w: parameter %s: activityd relies on %s: leave it out", ErrDSN, known, reliesOn(want))
		}
	}
	return nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// fixedName finds a parameter in fixed. The driver's names are case-sensitive; those of
// variables are not.
func fixedName(name string) (known, value string) {
	for _, spelling := range []string{name, strings.ToLower(name)} {
		if value, ok := fixed[spelling]; ok {
			return spelling, value
		}
	}
	return "", ""
}

func reliesOn(value string) string {
	if value == "" {
		return "its not being set"
	}
	return "its being " + value
}

// plain normalizes the ways to write a value: words of an enumeration are numbers, too, and the
// modes of sql_mode have no order.
func plain(value string) string {
	switch value = strings.ToLower(strings.Trim(value, `'"`)); value {
	case "on", "true":
		return "1"
	case "off", "false", "no_chain":
		return "0"
	case "read-committed":
		return "1"
	}
	words := strings.Split(value, ",")
	slices.Sort(words)
	return strings.Join(words, ",")
}
