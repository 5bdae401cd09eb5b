package audit_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
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
