package site_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	driver "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// TestNoTaskWithoutItsChange: a change that fails leaves no row and no task.
func TestNoTaskWithoutItsChange(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	ctx := t.Context()
	must(t, s.AddMember(ctx, 1, "one"))
	if _, err := s.Upload(ctx, site.Photo{ID: 5, Owner: 1, Visibility: contacts.Public, DateUpload: 100}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Upload(ctx, site.Photo{ID: 5, Owner: 1, Visibility: contacts.Public, DateUpload: 200, Notify: `{"type": "upload"}`}); err == nil {
		t.Error("a second photo of one id was accepted")
	}
	if _, err := s.Upload(ctx, site.Photo{Owner: 1, Visibility: "everybody", DateUpload: 300}); err == nil {
		t.Error("an unknown visibility was accepted")
	}
	last, err := contacts.NewMySQL(db).LastUploads(ctx, []member.ID{1})
	must(t, err)
	if last[1] != 100 {
		t.Errorf("last upload %d, want the 100 of the photo that was accepted", last[1])
	}
	if got := tasks(t, db); len(got) != 1 {
		t.Errorf("tasks %+v, want one", got)
	}
}

func TestUploadNotifies(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	must(t, s.AddMember(t.Context(), 1, "one"))
	_, err := s.Upload(t.Context(), site.Photo{ID: 5, Owner: 1, Visibility: contacts.Public, DateUpload: 100, Notify: `{"type": "upload", "object": "photo:5"}`})
	must(t, err)
	var subject, object string
	must(t, db.QueryRowContext(t.Context(), "SELECT subject, JSON_UNQUOTE(JSON_EXTRACT(args, '$.object')) FROM tasks WHERE type = 'notify'").Scan(&subject, &object))
	if subject != "1" || object != "photo:5" {
		t.Errorf("the notify task is of %s and about %s", subject, object)
	}
}

// TestNoChangeWithoutItsTask: where the task cannot be written, the change is
// taken back.
func TestNoChangeWithoutItsTask(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	ctx := t.Context()
	must(t, s.AddMember(ctx, 1, "one"))
	if _, err := db.ExecContext(ctx, "RENAME TABLE tasks TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetContact(ctx, 2, 1, site.Grant{}); err == nil {
		t.Error("SetContact without a table for tasks succeeded")
	}
	if _, err := s.Upload(ctx, site.Photo{Owner: 1, Visibility: contacts.Public, DateUpload: 100}); err == nil {
		t.Error("Upload without a table for tasks succeeded")
	}
	store := contacts.NewMySQL(db)
	followers, err := store.FollowerPages(ctx, []contacts.FollowerPage{{Of: 1}}, 10)
	must(t, err)
	last, err := store.LastUploads(ctx, []member.ID{1})
	must(t, err)
	if len(followers[0]) != 0 || last[1] != 0 {
		t.Errorf("followers %v and last uploads %v stayed behind", followers, last)
	}
}

// TestConcurrentChanges: transactions that change the same rows all succeed in the end.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	group, ctx := errgroup.WithContext(t.Context())
	for worker := range uint64(6) {
		group.Go(func() error { return meddle(ctx, s, rand.New(rand.NewPCG(worker, 0))) })
	}
	must(t, group.Wait())
}

func meddle(ctx context.Context, s site.Site, random *rand.Rand) error {
	for range 25 {
		a, b := member.ID(random.Uint64N(3)+1), member.ID(random.Uint64N(3)+1)
		var err error
		switch random.IntN(5) {
		case 0:
			err = s.DeleteMember(ctx, a)
		case 1:
			err = s.AddMember(ctx, a, "x")
		case 2:
			err = s.RemoveContact(ctx, a, b)
		case 3:
			_, err = s.Upload(ctx, site.Photo{Owner: a, Visibility: contacts.Public, DateUpload: 1})
		default:
			err = s.SetContact(ctx, a, b, site.Grant{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	anything := sqlmock.QueryMatcherFunc(func(string, string) error { return nil })
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(anything))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, mock
}

var deadlock = &driver.MySQLError{Number: 1213, Message: "Deadlock found"}

func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	done := sqlmock.NewResult(0, 1)
	mock.ExpectBegin()
	mock.ExpectExec("").WillReturnResult(done)
	mock.ExpectExec("").WillReturnError(deadlock)
	mock.ExpectRollback()
	mock.ExpectBegin() // from the beginning: the server took everything back
	mock.ExpectExec("").WillReturnResult(done)
	mock.ExpectExec("").WillReturnResult(done)
	mock.ExpectCommit()
	must(t, site.NewMySQL(db).RemoveContact(t.Context(), 1, 2))
	must(t, mock.ExpectationsWereMet())
}

func TestOtherErrorsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	mock.ExpectBegin()
	mock.ExpectExec("").WillReturnError(driver.ErrInvalidConn)
	mock.ExpectRollback()
	if err := site.NewMySQL(db).DeletePhoto(t.Context(), 1); !errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("DeletePhoto: %v, want ErrUnavailable", err)
	}
	must(t, mock.ExpectationsWereMet())
}

// TestDeadlocksWithoutEnd: the attempts are bounded, and the last error is returned.
func TestDeadlocksWithoutEnd(t *testing.T) {
	t.Parallel()
	db, mock := newMock(t)
	mock.MatchExpectationsInOrder(false)
	for range 100 {
		mock.ExpectBegin()
		mock.ExpectExec("").WillReturnError(deadlock)
		mock.ExpectRollback()
	}
	if err := site.NewMySQL(db).DeletePhoto(t.Context(), 1); !mysql.IsRetryable(err) {
		t.Errorf("DeletePhoto: %v, want the deadlock", err)
	}
	if mock.ExpectationsWereMet() == nil {
		t.Error("a hundred tries were made")
	}
}

func TestCancelledChange(t *testing.T) {
	t.Parallel()
	s := site.NewMySQL(openDB(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.SetContact(ctx, 1, 2, site.Grant{}); !errors.Is(err, context.Canceled) {
		t.Errorf("SetContact: %v, want context.Canceled", err)
	}
}
