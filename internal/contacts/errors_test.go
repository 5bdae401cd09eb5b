package contacts_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

// newMock returns a database that answers any query as mock expects.
func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	anything := sqlmock.QueryMatcherFunc(func(string, string) error { return nil })
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(anything))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, mock
}

func serverError(number uint16) error {
	return &driver.MySQLError{Number: number, Message: "as the server says it"}
}

// Each method tells that the server cannot be used, also where its statement is prepared already. The errors that
// mean so are tested in package mysql.
func TestOutagesAreUnavailable(t *testing.T) {
	t.Parallel()
	cause := serverError(1053)
	for method := range callsOf(contactstest.NewMemory()) {
		checkOutage(t, method, cause)
	}
	for _, method := range preparedMethods {
		checkOutageOnceItIsPrepared(t, method, cause)
	}
}

func checkOutage(t *testing.T, method string, cause error) {
	t.Helper()
	db, mock := newMock(t)
	switch method {
	case "Walk":
		mock.ExpectQuery("").WillReturnRows(sqlmock.NewRows([]string{"some"}).AddRow(true))
		mock.ExpectBegin().WillReturnError(cause)
	case "Look", "Compare", "TopContacts":
		mock.ExpectPrepare("").WillReturnError(cause)
	default:
		mock.ExpectQuery("").WillReturnError(cause)
	}
	err := callsOf(contacts.NewMySQL(db))[method](t.Context())
	if !errors.Is(err, mysql.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("%s: %v, want ErrUnavailable and the cause", method, err)
	}
}

// preparedMethods ask statements that are prepared.
var preparedMethods = []string{"Look", "Compare", "TopContacts"}

func checkOutageOnceItIsPrepared(t *testing.T, method string, cause error) {
	t.Helper()
	db, mock := newMock(t)
	mock.ExpectPrepare("").ExpectQuery().WillReturnError(cause)
	err := callsOf(contacts.NewMySQL(db))[method](t.Context())
	if !errors.Is(err, mysql.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("%s, prepared: %v, want ErrUnavailable and the cause", method, err)
	}
}

func TestWalkFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	cause := serverError(1053)
	contactRows := func() *sqlmock.Rows {
		return sqlmock.NewRows([]string{"viewer", "id", "last_upload"}).AddRow(int64(1), int64(2), int64(100))
	}
	steps := []func(sqlmock.Sqlmock) *sqlmock.ExpectedQuery{
		func(m sqlmock.Sqlmock) *sqlmock.ExpectedQuery { return m.ExpectQuery("").WillReturnRows(contactRows()) },
		func(m sqlmock.Sqlmock) *sqlmock.ExpectedQuery {
			return m.ExpectQuery("").WillReturnRows(standingRow(2, 7, 100))
		},
	}
	for failing := range len(steps) + 1 {
		db, mock := newMock(t)
		mock.ExpectQuery("EXISTS").WillReturnRows(sqlmock.NewRows([]string{"some"}).AddRow(true))
		mock.ExpectBegin()
		for _, step := range steps[:failing] {
			step(mock)
		}
		mock.ExpectQuery("").WillReturnError(cause)
		mock.ExpectRollback()
		walked, err := contacts.NewMySQL(db).Walk(t.Context(), contacts.Viewer{ID: 1}, 10)
		if !errors.Is(err, mysql.ErrUnavailable) || walked.Contact != nil {
			t.Errorf("statement %d failed: %+v, %v, want ErrUnavailable", failing+1, walked, err)
		}
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Errorf("statement %d failed: %v", failing+1, err)
		}
	}
}

func standingRow(owner, photo, date int64) *sqlmock.Rows {
	columns, row := []string{"id", "is_contact", "last_upload"}, []sqldriver.Value{owner, int64(1), int64(0), photo, date}
	for _, class := range ofShown {
		columns = append(columns, class+".id", class+".date_upload")
	}
	row = append(row, make([]sqldriver.Value, len(columns)-len(row))...)
	return sqlmock.NewRows(columns).AddRow(row...)
}

// TestRowsBreakOff: an answer that was cut short is no answer.
func TestRowsBreakOff(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	rows := sqlmock.NewRows([]string{"page", "user_id"}).RowError(2, driver.ErrInvalidConn)
	for _, follower := range []int64{3, 5, 7} {
		rows.AddRow(int64(0), follower)
	}
	mock.ExpectQuery("").WillReturnRows(rows)
	got, err := contacts.NewMySQL(db).FollowerPages(t.Context(), []contacts.FollowerPage{{Of: 1}}, 10)
	if !errors.Is(err, mysql.ErrUnavailable) || got != nil {
		t.Errorf("FollowerPages = %v, %v, want nothing and ErrUnavailable", got, err)
	}
}

// TestRowsOfAnotherSchema: a view that yields wrong types is an error that names
// the work.
func TestRowsOfAnotherSchema(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	mock.ExpectQuery("").WillReturnRows(sqlmock.NewRows([]string{"page", "user_id"}).AddRow(int64(0), "not a number"))
	_, err := contacts.NewMySQL(db).FollowerPages(t.Context(), []contacts.FollowerPage{{Of: 42}}, 10)
	if err == nil || errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "followers of 1 members") {
		t.Errorf("FollowerPages: %v, want an error that names the work and is no outage", err)
	}
}

func TestCancelledWhileTheServerWorks(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	mock.ExpectQuery("").WillDelayFor(1 << 40).WillReturnRows(sqlmock.NewRows([]string{"user_id"}))
	ctx, cancel := context.WithTimeout(t.Context(), 1<<20)
	defer cancel()
	_, err := contacts.NewMySQL(db).FollowerPages(ctx, []contacts.FollowerPage{{Of: 1}}, 10)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("FollowerPages: %v, want context.DeadlineExceeded alone", err)
	}
}
