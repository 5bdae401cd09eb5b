package push_test

import (
	"database/sql"
	"testing"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
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

// exec runs a statement that a test needs.
func exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func memberID(id uint64) member.ID { return member.ID(id) }
