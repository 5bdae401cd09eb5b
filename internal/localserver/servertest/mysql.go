package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/schema"
)

// Database is the name of the database that OwnMySQL makes.
const Database = "activityd"

// sharedMySQL is the server of this test process, started on first use.
var sharedMySQL shared

type shared struct {
	mu     sync.Mutex
	server *localserver.MySQL
	admin  *sql.DB
	err    error // why it could not be started; it is not tried again
	made   int   // databases so far, to name them
}

// MySQL returns a connection pool to an empty database with the schema, on the
// server that the tests of this process share. Both are gone when t ends.
func MySQL(t testing.TB) *sql.DB {
	t.Helper()
	return open(t, MySQLDSN(t))
}

// MySQLDSN is like [MySQL] for tests that open the database themselves. They
// must close it before they end.
func MySQLDSN(t testing.TB) string {
	t.Helper()
	name, err := sharedMySQL.newDatabase(t.Context())
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() {
		// t's context has ended by now.
		if err := sharedMySQL.drop(context.Background(), name); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
	return sharedMySQL.server.DSN(name)
}

// OwnMySQL returns a server that is this test's alone, to kill, pause and
// restart, with one database, named [Database], that has the schema. The server
// is closed when t ends.
func OwnMySQL(t testing.TB, args ...string) *localserver.MySQL {
	t.Helper()
	m, err := localserver.StartMySQL(t.Context(), args...)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() { closeServer(t, m) })
	if err := create(t.Context(), m, Database); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return m
}

// newDatabase starts the server if need be and makes a database with the schema.
func (s *shared) newDatabase(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		s.err = s.start()
	}
	if s.err != nil {
		return "", s.err
	}
	s.made++
	name := fmt.Sprintf("test_%d", s.made)
	return name, create(ctx, s.server, name)
}

// start starts the server for the tests of the whole process, whatever becomes
// of the test that happens to be the first.
func (s *shared) start() error {
	// The file system keeps what a killed server wrote; only a crash of the
	// machine would lose it, and no test survives that.
	server, err := localserver.StartMySQL(context.Background(), "--innodb-flush-log-at-trx-commit=2")
	if err != nil {
		return err
	}
	s.server = server
	s.admin, err = sql.Open("mysql", server.DSN(""))
	return err
}

func (s *shared) drop(ctx context.Context, name string) error {
	if _, err := s.admin.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// close ends the server, if there is one. Nobody wants its data, so it is not
// asked to put them in order.
func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return errors.Join(s.admin.Close(), s.server.Kill(), s.server.Close())
}

// create makes a database with the schema.
func create(ctx context.Context, m *localserver.MySQL, name string) error {
	if err := m.CreateDatabase(ctx, name); err != nil {
		return err
	}
	db, err := sql.Open("mysql", m.DSN(name))
	if err != nil {
		return err
	}
	return errors.Join(schema.Apply(ctx, db), db.Close())
}

// open opens a database that is closed when t ends.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatalf("servertest: open the database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("servertest: close the database: %v", err)
		}
	})
	return db
}

// server is what a test's own MySQL and Redis have in common.
type server interface {
	Kill() error
	Close() error
}

// closeServer ends a test's own server at once: nobody wants its data.
func closeServer(t testing.TB, s server) {
	t.Helper()
	if err := errors.Join(s.Kill(), s.Close()); err != nil {
		t.Errorf("servertest: %v", err)
	}
}
