package localserver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQL is a private MariaDB or MySQL server.
type MySQL struct {
	*server
	version string
}

// StartMySQL makes an empty data folder, starts mariadbd or mysqld on it and
// returns once the server answers. args are added to the server's command line, where
// they win over the defaults. ctx bounds the start only: the server runs until Close. An
// error names the package to install, or carries the end of the server's log.
func StartMySQL(ctx context.Context, args ...string) (*MySQL, error) {
	program, ok := FindMySQL()
	if !ok {
		return nil, missing("mariadbd", "mariadb-server")
	}
	s, err := newServer(filepath.Base(program))
	if err != nil {
		return nil, err
	}
	m := &MySQL{server: s}
	if err := m.setUp(ctx, program, args); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return m, nil
}

// setUp fills the data folder and starts the server.
func (m *MySQL) setUp(ctx context.Context, program string, args []string) error {
	me, err := user.Current()
	if err != nil {
		return fmt.Errorf("find the user to run %s: %w", m.name, err)
	}
	if err := os.Mkdir(m.path("files"), 0o700); err != nil {
		return err
	}
	// MySQL keeps how it compares names with the data.
	lasting := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "--lower-case-table-names") })
	if err := m.fill(ctx, program, me.Username, lasting); err != nil {
		return err
	}
	m.Argv, m.ping = m.serverCommand(program, me.Username, args), m.pingOnce
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.withDB(func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&m.version)
	})
}

// fill makes the data folder. If the environment variable ACTIVITYD_TEST_DATA names a folder,
// it has a copy of the first one that any process made, which takes a tenth of the time.
func (m *MySQL) fill(ctx context.Context, program, user string, args []string) error {
	folder, data := os.Getenv("ACTIVITYD_TEST_DATA"), m.path("data")
	first := filepath.Join(folder, strings.ReplaceAll(program, "/", "_")+strings.Join(args, ""))
	if folder != "" {
		if err := os.CopyFS(data, os.DirFS(first)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	install, err := m.installCommand(ctx, program, user)
	if err != nil {
		return err
	}
	if err := m.run(ctx, append(install, args...)); err != nil {
		return fmt.Errorf("make the data folder of %s: %w", m.name, err)
	}
	if folder == "" {
		return nil
	}
	copied, err := os.MkdirTemp(folder, "")
	if err != nil {
		return err
	}
	if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(copied, "auto.cnf")) // MySQL's identity: replicas must not share it
	_ = os.Rename(copied, first)                     // unless another process was faster
	return nil
}

// installCommand is the command that fills the data folder: a script of MariaDB, or
// MySQL's server itself.
func (m *MySQL) installCommand(ctx context.Context, program, user string) ([]string, error) {
	version, err := exec.CommandContext(ctx, program, "--no-defaults", "--version").Output()
	if err != nil {
		// The error of a killed program does not name the cause.
		return nil, fmt.Errorf("ask %s for its version: %w", program, cmp.Or(context.Cause(ctx), err))
	}
	if !strings.Contains(string(version), "MariaDB") {
		return []string{
			program, "--no-defaults", "--initialize-insecure",
			"--user=" + user, "--datadir=" + m.path("data"), "--secure-file-priv=" + m.path("files"),
			"--innodb-redo-log-capacity=16777216", m.ownTemp(),
		}, nil
	}
	// A server other than the installed server has its own script beside it.
	script, err := exec.LookPath(filepath.Join(filepath.Dir(program), "mariadb-install-db"))
	ok := err == nil
	if !ok {
		script, ok = find("mariadb-install-db", "mysql_install_db")
	}
	if !ok {
		return nil, missing("mariadb-install-db", "mariadb-server")
	}
	return []string{
		script, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db",
		"--user=" + user, "--datadir=" + m.path("data"), smallRedoLog, m.ownTemp(),
	}, nil
}

// ownTemp keeps temporary tables in the server's folder: servers that share a folder delete
// each other's when they start.
func (m *MySQL) ownTemp() string { return "--tmpdir=" + m.dir }

// smallRedoLog makes a start quick: the default redo log has a hundred megabytes.
const smallRedoLog = "--loose-innodb-log-file-size=16777216"

// serverCommand is the server's command line: light, and durable unless args say otherwise.
// "loose" options are those that MariaDB has alone, or MySQL.
func (m *MySQL) serverCommand(program, user string, args []string) []string {
	return append([]string{
		program,
		"--no-defaults",
		"--user=" + user,
		"--datadir=" + m.path("data"),
		m.ownTemp(),
		"--socket=" + m.Addr(),
		"--pid-file=" + m.path("pid"),
		"--secure-file-priv=" + m.path("files"),
		"--skip-networking",
		"--loose-mysqlx=OFF",
		"--skip-log-bin",
		"--performance-schema=OFF",
		"--character-set-server=utf8mb4",
		"--max-connections=300",
		"--innodb-buffer-pool-size=67108864",
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-flush-log-at-trx-commit=1",
		smallRedoLog,
	}, args...)
}

// Addr is the path of the server's unix socket.
func (m *MySQL) Addr() string { return m.path("sock") }

// DSN is the address of a database on the server for go-sql-driver; an empty name selects
// none. The user is root, without a password.
func (m *MySQL) DSN(database string) string { return m.config(database).FormatDSN() }

func (m *MySQL) config(database string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "unix", m.Addr(), database
	// Without it, each query with arguments costs three round trips.
	cfg.InterpolateParams = true
	return cfg
}

// Version is the server's version, for example "10.11.6-MariaDB".
func (m *MySQL) Version() string { return m.version }

// CreateDatabase makes an empty database. It fails if the database exists.
func (m *MySQL) CreateDatabase(ctx context.Context, name string) error {
	quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
	return m.withDB(func(db *sql.DB) error {
		if _, err := db.ExecContext(ctx, "CREATE DATABASE "+quoted+" CHARACTER SET utf8mb4"); err != nil {
			return fmt.Errorf("create database %s on %s: %w", name, m.name, err)
		}
		return nil
	})
}

// pingOnce connects within a second.
func (m *MySQL) pingOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return m.withDB(func(db *sql.DB) error { return db.PingContext(ctx) })
}

// withDB calls f with a connection pool without a database.
func (m *MySQL) withDB(f func(*sql.DB) error) error {
	cfg := m.config("")
	// The driver would log that a server does not answer yet.
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	return errors.Join(f(db), db.Close())
}
