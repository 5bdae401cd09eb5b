package push_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// openDB returns a pool to an empty database, as serve opens it.
func openDB(t *testing.T, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// exec runs a statement that a test needs.
func exec(t tester, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// must ends a test that cannot go on.
func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addressOf returns an address that is its token alone.
func addressOf(token string) push.Address {
	return push.NewAddress(token, map[string]string{"token": token})
}
