package contacts_test

import (
	"database/sql"
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

// openOwn opens the database of a server that is the test's alone, with the
// members of fillTwo. Counters of the server count the statements of the test.
func openOwn(t *testing.T, opts ...func(*sql.DB)) (db *sql.DB, dsn string) {
	t.Helper()
	dsn = servertest.OwnMySQL(t).DSN(servertest.Database)
	db, err := mysql.Open(dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	fillTwo(t, site.NewMySQL(db))
	return db, dsn
}

// mayPrepare sets how many statements the server may hold in all.
func mayPrepare(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "SET GLOBAL max_prepared_stmt_count = ?", n); err != nil {
		t.Fatal(err)
	}
}

// preparedNow is how many statements the server holds in all.
func preparedNow(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	row := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
	if err := row.Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
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

// TestServerThatPreparesNoMore: a server at its limit answers all the same, and
// prepares again when it can.
func TestServerThatPreparesNoMore(t *testing.T) {
	t.Parallel()
	db, _ := openOwn(t, mysql.WithMaxOpen(1))
	store := contacts.NewMySQL(db)
	mayPrepare(t, db, 0)
	for range 2 {
		checkPhotoOfTwo(t, store)
		standings, err := contacts.Standings(t.Context(), store, contacts.Viewer{ID: 1}, []member.ID{1, 2})
		if err != nil || len(standings) != 2 || standings[1].Newest == nil {
			t.Errorf("Standings: %+v, %v, want a photo of member 2", standings, err)
		}
	}
	impatient := store.WithPause(0)
	checkPhotoOfTwo(t, impatient)
	mayPrepare(t, db, 100)
	checkPhotoOfTwo(t, impatient)
	if n := preparedNow(t, db); n != 1 {
		t.Errorf("%d statements are prepared once there is room, want 1", n)
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
