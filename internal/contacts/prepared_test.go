package contacts_test

import (
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// checkPhotoOfTwo holds a store to the site of fillTwo.
func checkPhotoOfTwo(t *testing.T, store *contacts.MySQL) {
	t.Helper()
	album, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: 1}, 2, 10)
	if err != nil || album.Contact == nil || album.Contact.ID != 2 || len(album.Photos) != 1 || album.Photos[0].ID != 2 {
		t.Errorf("the photos of member 2 are %+v, %v, want photo 2", album, err)
	}
}

// TestStatementsArePreparedOnce: each connection prepares a statement once, and only
// the frequent statements.
func TestStatementsArePreparedOnce(t *testing.T) {
	t.Parallel()
	db := openDB(t, mysql.WithMaxOpen(1))
	fillTwo(t, site.NewMySQL(db))
	questions := callsOf(contacts.NewMySQL(db))
	const times = 4
	for range times {
		for method, ask := range questions {
			if err := ask(t.Context()); err != nil {
				t.Fatal(method, err)
			}
		}
	}
	for counter, want := range map[string]int{
		"Com_stmt_prepare": len(preparedMethods), "Com_stmt_execute": times * len(preparedMethods), "Com_stmt_close": 0,
	} {
		if got := servertest.SessionStatus(t, db, counter); got != want {
			t.Errorf("%s is %d, want %d", counter, got, want)
		}
	}
}

// TestRefusalsOfPreparedStatements: a statement that a server or a proxy refuses for being
// prepared is sent as text, and so are the next statements until the pause ends; anything else is
// sent once.
func TestRefusalsOfPreparedStatements(t *testing.T) {
	t.Parallel()
	for number, asText := range map[uint16]bool{
		1461: true, 1615: true, 1243: true, 1295: true, 1047: true, 1146: false, 3024: false, 1053: false,
	} {
		for _, atOnce := range []bool{true, false} {
			checkRefusal(t, number, atOnce, asText)
		}
	}
}

// checkRefusal refuses to prepare a statement, at once or when it is executed.
func checkRefusal(t *testing.T, number uint16, atOnce, asText bool) {
	t.Helper()
	db, mock := newMock(t)
	if refusal := serverError(number); atOnce {
		mock.ExpectPrepare("").WillReturnError(refusal)
	} else {
		mock.ExpectPrepare("").ExpectQuery().WillReturnError(refusal)
	}
	times := 1
	if asText {
		times = 2
		mock.ExpectQuery("").WillReturnRows(standingRow(2, 7, 100))
		mock.ExpectQuery("").WillReturnRows(standingRow(2, 7, 100))
	}
	store := contacts.NewMySQL(db)
	for range times {
		standings, err := contacts.Standings(t.Context(), store, contacts.Viewer{ID: 1}, []member.ID{2})
		if (err == nil) != asText {
			t.Errorf("error %d (at once: %t): %v", number, atOnce, err)
		}
		if asText && (len(standings) != 1 || standings[0].Newest == nil || standings[0].Newest.ID != 7) {
			t.Errorf("error %d (at once: %t): %+v, want photo 7", number, atOnce, standings)
		}
	}
	if err := mock.ExpectationsWereMet(); err != nil {
		t.Errorf("error %d (at once: %t): %v", number, atOnce, err)
	}
}

// After the pause the statement is prepared again.
func TestStatementsArePreparedAgain(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	mock.ExpectPrepare("").WillReturnError(serverError(1461))
	mock.ExpectQuery("").WillReturnRows(standingRow(2, 7, 100))
	mock.ExpectPrepare("").ExpectQuery().WillReturnRows(standingRow(2, 7, 100))
	store := contacts.NewMySQL(db).WithPause(0)
	for range 2 {
		standings, err := contacts.Standings(t.Context(), store, contacts.Viewer{ID: 1}, []member.ID{2})
		if err != nil || len(standings) != 1 {
			t.Errorf("%+v, %v", standings, err)
		}
	}
	if err := mock.ExpectationsWereMet(); err != nil {
		t.Error(err)
	}
}
