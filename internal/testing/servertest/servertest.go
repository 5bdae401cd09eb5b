// Package servertest gives tests real servers of their own: see package
// localserver. A package that uses it runs its tests by [Main]:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// Each server and database is empty, belongs to one test, and is removed when the test ends, so that all
// tests may run in parallel:
//
//	db := servertest.MySQL(t)     // a database of its own with the schema
//	redis := servertest.Redis(t)  // a server of its own
//	m := servertest.OwnMySQL(t)   // a server of its own, to kill or to pause
//	c := servertest.NewCluster(t, 3, 1) // a Redis cluster of its own: three masters, a replica each
//	p := servertest.NewProxy(t, redis.Addr()) // a connection to delay or to cut
//
// A server that is not installed fails the test, with a message that names the package
// to install; the test is never skipped.
package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"go.uber.org/goleak"

	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/localserver"
)

// Database is the name of the database that OwnMySQL makes.
const Database = "activityd"

// shared is the server of all tests of this process, started on first use.
var shared struct {
	mu        sync.Mutex
	server    *localserver.MySQL
	admin     *sql.DB
	err       error // of the start; there is no second start
	databases int   // so far, to name them
}

// Main runs the tests of a package, stops the server that they shared, and
// ends the process: with an error when a test failed, when the server could not
// be stopped, or when goroutines are left that opts do not excuse.
//
// The servers' folders are in memory where there is room: making a database on a disk takes
// ten times as long.
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	var memory *os.File
	if os.Getenv("ACTIVITYD_TEST_FOLDER") == "" {
		memory = newMemoryFolder()
	}
	if memory != nil {
		_ = os.Setenv("ACTIVITYD_TEST_FOLDER", memory.Name()) // for the processes that the tests start, too
	}
	redisnodes.CallTimeout, redisnodes.ProbeTimeout = 5*time.Second, 5*time.Second // the machine may be busy
	code := m.Run()
	var err error
	if shared.server != nil {
		err = errors.Join(shared.admin.Close(), shared.server.Kill(), shared.server.Close())
	}
	if memory != nil {
		err = errors.Join(err, os.RemoveAll(memory.Name()), memory.Close())
	}
	if code == 0 && err == nil { // a test that failed may leave a goroutine behind
		for begin := time.Now(); ; {
			err = goleak.Find(opts...)
			if err == nil || time.Since(begin) > 20*time.Second { // a connection may need time to close
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "servertest: %v\n", err)
		code = max(1, code)
	}
	os.Exit(code)
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
	name, err := newDatabase(t.Context())
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() {
		// t's context has ended by now.
		if _, err := shared.admin.ExecContext(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Errorf("servertest: drop database %s: %v", name, err)
		}
	})
	return shared.server.DSN(name)
}

// newDatabase makes a database on the shared server, and starts the server if need be.
func newDatabase(ctx context.Context) (name string, err error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		// The server outlives the test that is the first, and its context. It loses nothing
		// when it is killed, only when the machine crashes.
		shared.server, shared.err = localserver.StartMySQL(context.Background(), "--innodb-flush-log-at-trx-commit=2")
		if shared.err == nil {
			shared.admin, shared.err = sql.Open("mysql", shared.server.DSN(""))
		}
	}
	if shared.err != nil {
		return "", shared.err
	}
	shared.databases++
	name = fmt.Sprintf("test_%d", shared.databases)
	return name, create(ctx, shared.server, name)
}

// OwnMySQL returns a server that is this test's alone, to kill, pause and
// restart, with one database, named [Database], that has the schema. The server
// is closed when t ends.
func OwnMySQL(t testing.TB, args ...string) *localserver.MySQL {
	t.Helper()
	m := startMySQL(t, args...)
	if err := create(t.Context(), m, Database); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return m
}

// Redis returns an empty Redis that is this test's alone, to kill, pause,
// restart and flush. It is closed when t ends.
func Redis(t testing.TB, args ...string) *localserver.Redis {
	t.Helper()
	r, err := localserver.StartRedis(t.Context(), args...)
	return ending(t, r, err)
}

// startMySQL starts a server without a database. The server is closed when t ends.
func startMySQL(t testing.TB, args ...string) *localserver.MySQL {
	t.Helper()
	m, err := localserver.StartMySQL(t.Context(), args...)
	return ending(t, m, err)
}

// ending returns a server that was started, which is closed when t ends.
func ending[S interface {
	Kill() error
	Close() error
}](t testing.TB, server S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(server.Kill(), server.Close()); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
	return server
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
