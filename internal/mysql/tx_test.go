package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// newMock returns a database that takes any statement.
func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherFunc(func(string, string) error { return nil })))
	if err != nil {
		t.Fatal(err)
	}
	return db, mock
}

func TestTransactRetriesAfterDeadlocks(t *testing.T) {
	t.Parallel()
	deadlock, refused := serverError(1213), serverError(1062)
	for _, test := range []struct {
		name  string
		fails []error // of the attempts, in order
		runs  int
		want  error
	}{
		{"at once", nil, 1, nil},
		{"after two", []error{deadlock, deadlock}, 3, nil},
		{"too often", []error{deadlock, deadlock, deadlock, deadlock, deadlock, deadlock, deadlock, deadlock, deadlock}, 8, deadlock},
		{"for another reason", []error{refused}, 1, refused},
	} {
		synctest.Test(t, func(t *testing.T) {
			db, mock := newMock(t)
			defer func() { _ = db.Close() }()
			runs := 0
			for i := range test.runs {
				mock.ExpectBegin()
				if i < len(test.fails) {
					mock.ExpectRollback()
				} else {
					mock.ExpectCommit()
				}
			}
			err := mysql.Transact(t.Context(), db, "work", func(*sql.Tx) error {
				runs++
				if runs <= len(test.fails) {
					return test.fails[runs-1]
				}
				return nil
			})
			if runs != test.runs || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%s: %d runs, %v, want %d and %v", test.name, runs, err, test.runs, test.want)
			}
			if err := mock.ExpectationsWereMet(); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		})
	}
}

func TestTransactEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	defer func() { _ = db.Close() }()
	mock.ExpectBegin()
	mock.ExpectRollback()
	ctx, cancel := context.WithCancel(t.Context())
	err := mysql.Transact(ctx, db, "work", func(*sql.Tx) error { cancel(); return serverError(1213) })
	if !errors.Is(err, context.Canceled) || errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

// The clock and the helpers, on a real server.
func TestStatements(t *testing.T) {
	t.Parallel()
	db := openWith(t, servertest.MySQLDSN(t), "")
	ids := []uint64{3, 1, 1<<64 - 1}
	err := mysql.Transact(t.Context(), db, "work", func(tx *sql.Tx) error {
		var past string
		if err := tx.QueryRowContext(t.Context(), "SELECT "+mysql.Now+" > 1600000000000").Scan(&past); err != nil || past != "1" {
			t.Errorf("the clock is late: %s, %v", past, err)
		}
		for _, id := range ids {
			if n, err := mysql.Affected(tx.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (?, 'a')", id)); n != 1 || err != nil {
				t.Errorf("%d rows inserted, %v", n, err)
			}
		}
		keys, err := mysql.Select(t.Context(), tx, mysql.Column[any], "SELECT id FROM users WHERE id IN ("+mysql.Marks(len(ids))+")", mysql.Args(ids)...)
		if err != nil || len(keys) != len(ids) {
			t.Errorf("keys %v, %v", keys, err)
		}
		n, err := mysql.Affected(tx.ExecContext(t.Context(), "UPDATE users SET username = 'b' WHERE id IN ("+mysql.Marks(len(keys))+")", keys...))
		if n != len(ids) {
			t.Errorf("%d rows have these keys, want %d", n, len(ids))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
