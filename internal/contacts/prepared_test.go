package contacts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// checkPhotoOfTwo holds a store to what fillTwo made.
func checkPhotoOfTwo(t *testing.T, store *contacts.MySQL) {
	t.Helper()
	album, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: 1}, 2, 10)
	if err != nil || album.Contact == nil || album.Contact.ID != 2 || len(album.Photos) != 1 || album.Photos[0].ID != 2 {
		t.Errorf("the photos of member 2 are %+v, %v, want photo 2", album, err)
	}
}

// openOwn opens the database of a server that is the test's alone, with the
// members of fillTwo. Counters of the server count what the test does.
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
// the frequent ones.
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

// TestRefusalsOfPreparedStatements: what a server or a proxy refuses for being
// prepared is sent as text, and so are the next ones until the pause ends; anything else is
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

// TestCancelledPreparation: the end of one caller's context is nothing to the next.
func TestCancelledPreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time ends while the statement is being prepared, and not before
		db, mock := newMock(t)
		mock.ExpectPrepare("").WillDelayFor(time.Hour)
		mock.ExpectPrepare("").ExpectQuery().WillReturnRows(standingRow(2, 7, 100))
		store := contacts.NewMySQL(db)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := contacts.Standings(ctx, store, contacts.Viewer{ID: 1}, []member.ID{2})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("Standings: %v, want context.DeadlineExceeded alone", err)
		}
		standings, err := contacts.Standings(t.Context(), store, contacts.Viewer{ID: 1}, []member.ID{2})
		if err != nil || len(standings) != 1 {
			t.Errorf("the next caller: %+v, %v, want an answer", standings, err)
		}
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
	})
}

// TestConnectionsComeAndGo: connections live for a millisecond, and the server
// holds no more than what is open; nothing, when the pool is closed.
func TestConnectionsComeAndGo(t *testing.T) {
	t.Parallel()
	const connections = 4
	db, dsn := openOwn(t, mysql.WithMaxOpen(connections))
	db.SetConnMaxLifetime(time.Millisecond)
	askAtOnce(t, contacts.NewMySQL(db), 2*connections)
	if closed := db.Stats().MaxLifetimeClosed; closed == 0 {
		t.Error("no connection came to its end")
	}
	awaitPrepared(t, dsn, connections)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	awaitPrepared(t, dsn, 0)
}

// askAtOnce repeats a query from so many goroutines.
func askAtOnce(t *testing.T, store *contacts.MySQL, goroutines int) {
	t.Helper()
	var group errgroup.Group
	start := make(chan struct{})
	for range goroutines {
		group.Go(func() error {
			<-start
			for range 50 {
				album, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: 1}, 2, 10)
				if err != nil || len(album.Photos) != 1 {
					return fmt.Errorf("%d photos, want 1: %w", len(album.Photos), err)
				}
			}
			return nil
		})
	}
	close(start)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// awaitPrepared waits until the server, which learns later than we of connections
// that were closed, holds at most so many statements.
func awaitPrepared(t *testing.T, dsn string, most int) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	deadline := time.Now().Add(20 * time.Second)
	for n := preparedNow(t, db); n > most; n = preparedNow(t, db) {
		if time.Now().After(deadline) {
			t.Fatalf("%d statements are prepared, want at most %d", n, most)
		}
	}
}
