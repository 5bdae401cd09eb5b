package site_test

import (
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
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
