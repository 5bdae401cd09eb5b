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

// The pool's defaults. A lifetime lets a proxy or a failover move connections. Connections of one burst expire
// together: the next burst opens as many as the first did.
const (
	defaultMaxOpen = 32
	lifetime       = time.Minute
	connectTimeout = 5 * time.Second
	maxIdle        = 20 * time.Second // shorter than wait_timeout, so that this end closes first
)

// defaults are the session variables that a DSN may choose, in seconds.
var defaults = map[string]string{
	// How long a statement waits for a row that another transaction holds. The server's default of 50 s is longer
	// than callers wait; the transaction is run again anyway.
	"innodb_lock_wait_timeout": "5",
	// When the server closes an idle connection, which ends its transaction. A process that was stopped in the middle
	// of a transaction, or whose machine is gone, would hold its locks for the server's default of 8 hours.
	"wait_timeout": "30",
}

// ErrDSN is wrapped by the errors about a DSN that cannot be used.
var ErrDSN = errors.New("MySQL DSN")

// WithMaxOpen sets the maximum number of connections, in use or idle; the default is 32.
func WithMaxOpen(n int) func(*sql.DB) {
	return func(db *sql.DB) {
		db.SetMaxOpenConns(n)
		db.SetMaxIdleConns(n)
	}
}

// Open makes a pool of connections to the database of dsn, in the form of go-sql-driver:
// user:password@tcp(host:3306)/database. It does not connect: the first use notices a server that is down.
//
// Each connection sets up the session that the SQL of activityd relies on, as docs/decisions/0026-session.md says:
// autocommit, READ COMMITTED, strict sql_mode, UTC (elsewhere [Now] is an hour off while daylight saving time
// ends), utf8mb4. A dsn with another value is refused by the parameter's name, and so is a proxy that shares
// sessions among connections.
//
// All connections lead to the primary: a server that is read-only is refused for reads, too, as it may lag. After
// a failover the pool gives up the connections to the server before: at most a second after it became read-only,
// and else when the first new connection leads to another server, after a minute at the latest.
//
// The defaults are 5 s for timeout (of connecting) and innodb_lock_wait_timeout, and 30 s for wait_timeout. client_cert names a file with a certificate and its key for the server. The remaining
// parameters are the driver's, or session variables, and a server that does not know a variable refuses the connection.
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

// CreateDatabase makes the database that a DSN names, unless it is there, which needs no right to make databases.
// Errors are the server's, or as in [Open].
func CreateDatabase(ctx context.Context, dsn string) error {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return err
	}
	// On a connection of its own, as the server sets it up.
	exec := func(statement string) error {
		plain, err := mysql.NewConnector(cfg)
		if err != nil {
			return errUnreadable
		}
		db := sql.OpenDB(plain)
		_, err = db.ExecContext(ctx, statement)
		return errors.Join(err, db.Close())
	}
	if err := exec("DO 1"); numberOf(err) != erUnknownDatabase {
		return err
	}
	name := strings.ReplaceAll(cfg.DBName, "`", "``")
	cfg.DBName = ""
	return exec("CREATE DATABASE IF NOT EXISTS `" + name + "`")
}

// errUnreadable leaves the driver's reason out, which may quote the part that it failed at: with an unescaped
// password that is a part of the password.
var errUnreadable = fmt.Errorf(
	"%w: cannot be read: want user:password@tcp(host:3306)/database, or user:password@unix(/socket)/database", ErrDSN)

// cutCertificate takes the file of client_cert out of a DSN, where the driver would want its slashes
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
	cfg.InterpolateParams, cfg.ClientFoundRows, cfg.RejectReadOnly = true, true, true
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	params := maps.Clone(defaults)
	maps.Copy(params, cfg.Params)
	// The connection sets up the fixed variables, with names that its server knows.
	maps.DeleteFunc(params, func(name, _ string) bool {
		known, _ := fixedValue(name)
		return known != ""
	})
	cfg.Params = params
	cfg.Logger = &mysql.NopLogger{} // the errors that the driver would write to stderr are returned, too
	if err := cfg.Apply(mysql.Charset(charset, collation)); err != nil {
		return nil, errUnreadable
	}
	return cfg, nil
}
