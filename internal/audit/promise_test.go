package audit_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/site"
)

// A photo that is newer than its owner's last upload makes answers wrong in the same
// way by the index and by the walk, so that no comparison of the two would tell.
func TestALowLastUpload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store.AddPhoto(0, 14, "not told of", contacts.Friends, 9000)
	b.store.AddPhoto(0, 15, "shown to nobody", contacts.Private, 9000)
	b.enqueue(t, tasks.NewRefill(14)) // no task of activityd's would mend it
	answers, err := b.CheckAnswers(t.Context(), []member.ID{viewer})
	must(t, err)
	found(t, answers)
	r, err := b.Check(t.Context(), from(11, 10))
	must(t, err)
	found(t, r, "error low last upload")
	f := r.Findings[0]
	if f.User != 14 || f.Stored != 140 || f.Actual != 9000 || !strings.Contains(f.Detail, "raise users.last_upload of member 14 to 9000") {
		t.Errorf("%+v", f)
	}
	if r.Erroneous != 1 || len(r.Users(audit.Error)) != 0 {
		t.Errorf("%d are wrong, %v are to be refilled, which would not help", r.Erroneous, r.Users(audit.Error))
	}
	b.store.SetLastUpload(14, 9000)
	r, err = b.Check(t.Context(), from(11, 10))
	must(t, err)
	found(t, r)
}

// A site that raises last_upload with a photo that becomes visible, and forgets the task,
// breaks the sets; one that forgets both breaks its promise. Neither goes unnoticed.
func TestAPhotoShownWithoutItsEvent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		show func(*contacts.Memory)
		want string
	}{
		{func(m *contacts.Memory) { m.SetLastUpload(16, 9000); m.SetVisibility(900, contacts.Public) }, "error stale score"},
		{func(m *contacts.Memory) { m.SetVisibility(900, contacts.Public) }, "error low last upload"},
	} {
		b := newBench(t)
		b.store.AddPhoto(900, 16, "shown later", contacts.Private, 9000)
		for _, want := range [][]string{nil, {test.want}} {
			r, err := b.Check(t.Context(), append(from(11, 10), viewer))
			must(t, err)
			found(t, r, want...)
			test.show(b.store)
		}
	}
}

// The members whose newest photo is private tell as much as their numbers do.
func TestWhetherPrivateUploadsCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tell := func(covered, beyond int, want audit.PrivateUploads) {
		t.Helper()
		r, err := b.Check(t.Context(), from(11, 10))
		must(t, err)
		found(t, r)
		if r.PrivateCovered != covered || r.PrivateBeyond != beyond || audit.MeaningOf(int64(covered), int64(beyond)) != want {
			t.Errorf("%d are covered, %d are not: private uploads %s; want %d, %d, %s", r.PrivateCovered, r.PrivateBeyond,
				audit.MeaningOf(int64(r.PrivateCovered), int64(r.PrivateBeyond)), covered, beyond, want)
		}
	}
	tell(0, 0, audit.PrivateUnknown)
	b.store.AddPhoto(0, 15, "older", contacts.Private, 1)
	tell(0, 0, audit.PrivateUnknown)
	b.store.SetVisibility(5, contacts.Private) // the first that 15 uploaded, at its last upload
	tell(1, 0, audit.PrivateMayCount)
	b.store.AddPhoto(0, 14, "not counted", contacts.Private, 9000)
	tell(1, 1, audit.PrivateSomeDoNotCount)
}

func TestALowLastUploadInTheDatabase(t *testing.T) {
	t.Parallel()
	g, db := onMySQLAnd(t)
	g.settle(t, from(100, 3), from(1000, 20), 8)
	must(t, g.site.LoadPhotos(t.Context(), []site.Photo{{Owner: 1008, Visibility: contacts.Public, DateUpload: 5}}))
	const newer = "INSERT INTO photos (owner_id, title, visibility, date_upload) VALUES (1007, 'newest', 'family', 9000000)"
	_, err := db.ExecContext(t.Context(), newer)
	must(t, err)
	r, err := g.Check(t.Context(), from(1000, 20))
	must(t, err)
	found(t, r, "error low last upload")
	if f := r.Findings[0]; f.User != 1007 || f.Stored != 1_000_070 || f.Actual != 9_000_000 {
		t.Errorf("%+v", f)
	}
}
