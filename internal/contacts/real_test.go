package contacts_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// A single statement answers a viewer without a contact that ever uploaded.
func TestNothingToWalkIsOneStatement(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := site.NewMySQL(db)
	must(t, s.LoadMembers(t.Context(), []site.Member{{ID: 1, Username: "viewer"}, {ID: 2, Username: "silent"}, {ID: 3, Username: "alone"}}))
	must(t, s.SetContact(t.Context(), 1, 2, site.Grant{}))
	for _, id := range []member.ID{1, 3, 99} {
		var walked contacts.Walked
		var err error
		statements := servertest.Statements(t, db, func() { walked, err = contacts.NewMySQL(db).Walk(t.Context(), contacts.Viewer{ID: id}, 10) })
		if len(statements) != 1 || walked.Trace.Statements != 1 || walked.Indexable || errors.Is(err, contacts.ErrNoMember) != (id == 99) || err != nil && id != 99 {
			t.Errorf("%d: %+v, %v, %d statements: %q", id, walked, err, len(statements), statements)
		}
	}
}

// TestWalkIsOneInstant swaps which of two contacts shows its photo, in one
// transaction, over and over: at each instant exactly one photo is visible, so a
// walk that finds none, or a photo under the wrong name, has
// seen two instants.
func TestWalkIsOneInstant(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fillTwo(t, s)
	// Chunks of one: each contact is looked at by a statement of its own.
	store := contacts.NewMySQL(db).WithChunks(1)

	swapped := make(chan error, 1)
	go func() { swapped <- swapUntilDone(ctx, db) }()
	for range 200 {
		walked, err := store.Walk(t.Context(), contacts.Viewer{ID: 1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if walked.Contact == nil || len(walked.Photos) != 1 || member.ID(walked.Photos[0].ID) != walked.Contact.ID {
			t.Fatalf("a walk of more than one instant: %+v", walked)
		}
	}
	cancel()
	if err := <-swapped; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestWalkSaysHowFarItWent: the 101st contact shows something, so the first 32 do
// not suffice, and the next 256 do.
func TestWalkSaysHowFarItWent(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := site.NewMySQL(db)
	members, relations, photos := []site.Member{{ID: 1}}, []site.Relation(nil), []site.Photo(nil)
	for i := range uint64(400) {
		id := member.ID(10 + i)
		members = append(members, site.Member{ID: id})
		relations = append(relations, site.Relation{User: 1, Contact: id})
		photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Friends, DateUpload: 1000 - i})
	}
	photos[100].Visibility = contacts.Public
	for _, err := range []error{
		s.LoadMembers(t.Context(), members), s.LoadContacts(t.Context(), relations), s.LoadPhotos(t.Context(), photos),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	walked, err := contacts.NewMySQL(db).Walk(t.Context(), contacts.Viewer{ID: 1}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := contacts.WalkTrace{LookedAt: 32 + 256, Statements: 5, Bound: 1000 - 288}
	if walked.Trace != want {
		t.Errorf("trace %+v, want %+v", walked.Trace, want)
	}
}

func fillTwo(t *testing.T, s *site.MySQL) {
	t.Helper()
	for _, err := range []error{
		s.LoadMembers(t.Context(), []site.Member{{ID: 1}, {ID: 2}, {ID: 3}}),
		s.LoadContacts(t.Context(), []site.Relation{{User: 1, Contact: 2}, {User: 1, Contact: 3}}),
		s.LoadPhotos(t.Context(), []site.Photo{
			{ID: 2, Owner: 2, Visibility: contacts.Public, DateUpload: 100},
			{ID: 3, Owner: 3, Visibility: contacts.Friends, DateUpload: 100},
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func swapUntilDone(ctx context.Context, db *sql.DB) error {
	for {
		_, err := db.ExecContext(ctx, `UPDATE photos SET visibility = IF(visibility = 'public', 'friends', 'public')`)
		if err != nil {
			return err
		}
	}
}

// TestServerKilledAndBack: calls fail with ErrUnavailable while the server is down, and
// succeed once it is back.
func TestServerKilledAndBack(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	db, err := mysql.Open(server.DSN(servertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store := contacts.NewMySQL(db)
	fillTwo(t, site.NewMySQL(db))
	checkPhotoOfTwo(t, store)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // first over the dead connection, then over none
		if _, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: 1}, 2, 10); !errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("VisiblePhotos on a killed server: %v, want ErrUnavailable", err)
		}
		if _, err := store.Walk(t.Context(), contacts.Viewer{ID: 1}, 10); !errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("Walk on a killed server: %v, want ErrUnavailable", err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Walk(t.Context(), contacts.Viewer{ID: 4}, 10); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("Walk on the restarted server: %v, want ErrNoMember", err)
	}
	checkPhotoOfTwo(t, store) // the server that it was prepared on has lost it
}
