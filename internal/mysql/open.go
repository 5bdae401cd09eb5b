package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/clientcert"
)

// The pool's defaults. A lifetime lets a proxy or a failover move connections: the first
// new one that leads to another server ends the others. That of each connection is up to a
// quarter shorter, so that those that were opened at once, after a failover, do not end at once.
const (
	defaultMaxOpen = 32
	lifetime       = time.Minute
	connectTimeout = 5 * time.Second
	maxIdle        = 20 * time.Second // less than idleWait, so that this end closes first
)

// lockWait, in seconds, is how long a statement waits for a row that another
// transaction holds. The server's default of 50 s is longer than callers wait; the
// transaction is retried anyway.
const lockWait = "5"

// idleWait, in seconds, is how long the server waits for the next statement on a
// connection before it closes it, which ends the transaction that may be open there. A
// process that was stopped in the middle of one, or whose machine is gone, would hold its
// locks for the server's default, 8 hours.
const idleWait = "30"

// ErrDSN is wrapped by the errors about a DSN that cannot be used.
var ErrDSN = errors.New("MySQL DSN")

// WithMaxOpen sets the maximum number of connections, in use or idle; the default is 32.
func WithMaxOpen(n int) func(*sql.DB) {
	return func(db *sql.DB) {
		db.SetMaxOpenConns(n)
		db.SetMaxIdleConns(n)
	}
}

// Open makes a pool of connections to the database that dsn names, in the
// form of go-sql-driver: user:password@tcp(host:3306)/database. It does not
// connect: a server that is down is noticed by the first use.
//
// Each connection sets the session up that the SQL of activityd relies on, whatever the
// server's defaults are: autocommit, the isolation level, sql_mode, the time zone
// UTC (in others UNIX_TIMESTAMP(NOW(3)), the clock of the queue, is an hour off
// while daylight saving time ends), charset utf8mb4, and the other variables of
// docs/decisions/0026-session.md. Of the driver's parameters, interpolateParams (a
// query is one round trip and not three), clientFoundRows (an UPDATE counts the
// rows that it matched) and rejectReadOnly (a connection whose server refuses a write
// because it is read-only is closed) are set, and multiStatements is not. A dsn that has
// one of these with another value is refused, by the parameter's name.
//
// A connection whose session is shared with others, by a proxy, is refused.
//
// All connections lead to the primary. A server that is read-only is refused, for reads,
// too: it may lag. After a failover the pool gives up the connections to the server before:
// when that became read-only, at most a second later; else when the first new connection
// leads to another server, after a minute at the latest.
//
// Others have defaults: 5 seconds for connecting, 5 seconds for row locks
// (innodb_lock_wait_timeout), and 30 seconds until the server closes an idle connection
// (wait_timeout), which bounds how long a process that was stopped in the middle of a
// transaction holds its locks. client_cert names a file with a certificate and its key, which the server
// is shown. All remaining parameters are the driver's or session
// variables; a server that does not know one refuses the connection.
//
// Errors wrap [ErrDSN] and never quote dsn, which holds a password.
func Open(dsn string, opts ...func(*sql.DB)) (*sql.DB, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	plain, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errUnreadable
	}
	db := sql.OpenDB(connector{plain, &servers{database: cfg.DBName}, max(cfg.Timeout, connectTimeout)})
	WithMaxOpen(defaultMaxOpen)(db)
	db.SetConnMaxLifetime(lifetime)
	db.SetConnMaxIdleTime(maxIdle)
	for _, opt := range opts {
		opt(db)
	}
	return db, nil
}

// CreateDatabase makes the database that a DSN names, unless it is there. Errors are those of [Open] and of the server.
func CreateDatabase(ctx context.Context, dsn string) error {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return err
	}
	named, name := cfg.Clone(), cfg.DBName
	named.DBName = ""
	for _, c := range []*mysql.Config{cfg, named} {
		plain, err := mysql.NewConnector(c)
		if err != nil {
			return errUnreadable
		}
		db := sql.OpenDB(plain)
		statement := "DO 1"
		if c == named {
			statement = "CREATE DATABASE IF NOT EXISTS `" + strings.ReplaceAll(name, "`", "``") + "`"
		}
		_, err = db.ExecContext(ctx, statement)
		_ = db.Close()
		if serverError(err) != erUnknownDatabase {
			return err
		}
	}
	return nil
}

// errUnreadable leaves the driver's reason out: it may quote the part that it
// failed at, and with an unescaped password that is a part of it.
var errUnreadable = fmt.Errorf(
	"%w: cannot be read: want user:password@tcp(host:3306)/database, or user:password@unix(/socket)/database", ErrDSN)

// Place names the server and the database of a DSN, without user, password and
// parameters, as in "tcp(host:3306)/name". Its errors are those of [Open].
func Place(dsn string) (string, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s(%s)/%s", cfg.Net, cfg.Addr, cfg.DBName), nil
}

// cutCertificate takes the file of client_cert out of a DSN, in which the driver would want its slashes
// escaped.
func cutCertificate(dsn string) (rest, file string) {
	before, after, found := strings.Cut(dsn, clientcert.Parameter+"=")
	if !found || !strings.HasSuffix(before, "?") && !strings.HasSuffix(before, "&") {
		return dsn, ""
	}
	file, rest, _ = strings.Cut(after, "&")
	if rest == "" {
		before = before[:len(before)-1]
	}
	return before + rest, file
}

func parseDSN(dsn string) (*mysql.Config, error) {
	dsn, file := cutCertificate(dsn)
	if err := checkParameters(dsn); err != nil {
		return nil, err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errUnreadable
	}
	switch cfg.Net {
	case "tcp", "tcp4", "tcp6", "unix":
	default: // not quoted either: see errUnreadable
		return nil, fmt.Errorf("%w: unknown network: want tcp(host:3306) or unix(/socket)", ErrDSN)
	}
	if cfg.DBName == "" {
		return nil, fmt.Errorf("%w: names no database: want it after the last slash, as in tcp(host:3306)/database", ErrDSN)
	}
	if file != "" && cfg.TLS == nil {
		return nil, fmt.Errorf("%w: %s needs tls=true beside it", ErrDSN, clientcert.Parameter)
	} else if file != "" {
		if err := clientcert.Add(cfg.TLS, file); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDSN, err)
		}
	}
	cfg.InterpolateParams = true
	cfg.ClientFoundRows = true
	cfg.RejectReadOnly = true
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	if cfg.Params == nil {
		cfg.Params = make(map[string]string)
	}
	// The connector sets these, with names that this server knows.
	maps.DeleteFunc(cfg.Params, func(name, _ string) bool {
		known, _ := fixedName(name)
		return known != ""
	})
	for name, ours := range map[string]string{"innodb_lock_wait_timeout": lockWait, "wait_timeout": idleWait} {
		if _, chosen := cfg.Params[name]; !chosen {
			cfg.Params[name] = ours
		}
	}
	// The driver logs lost connections to stderr on its own; they are returned as errors.
	cfg.Logger = &mysql.NopLogger{}
	if err := cfg.Apply(mysql.Charset(charset, collation)); err != nil {
		return nil, errUnreadable
	}
	return cfg, nil
}
