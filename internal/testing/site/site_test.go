package site_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// made is a site with its emitted events and its stored rows.
type made struct {
	site.Site
	events func(t *testing.T) []site.Event
	store  interface {
		LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error)
		FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
	}
}

func newMemory(*testing.T) made {
	var emitted []site.Event
	store := contactstest.NewMemory()
	return made{
		Site: &site.Memory{Store: store, Emit: func(_ context.Context, e site.Event) error {
			emitted = append(emitted, e)
			return nil
		}},
		events: func(*testing.T) []site.Event { return slices.Clone(emitted) },
		store:  store,
	}
}

func newMySQL(t *testing.T) made {
	t.Helper()
	db := openDB(t)
	return made{
		Site:   site.NewMySQL(db),
		events: func(t *testing.T) []site.Event { t.Helper(); return tasks(t, db) },
		store:  contacts.NewMySQL(db),
	}
}

func openDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tasks reads the tasks as events, and insists on the form of the arguments.
func tasks(t *testing.T, db *sql.DB) []site.Event {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
SELECT type, subject, COALESCE(JSON_UNQUOTE(JSON_EXTRACT(args, '$.contact_id')), '0'),
  JSON_LENGTH(args), COALESCE(JSON_TYPE(JSON_EXTRACT(args, '$.contact_id')), 'STRING')
FROM tasks ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []site.Event
	for rows.Next() {
		var e site.Event
		var args int
		var kind string
		if err := rows.Scan(&e.Type, &e.User, &e.Contact, &args, &kind); err != nil {
			t.Fatal(err)
		}
		if (args == 1) != (e.Contact != 0) || kind != "STRING" {
			t.Errorf("task %+v has %d arguments, the contact being of type %s", e, args, kind)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// eachSite runs test for both implementations.
func eachSite(t *testing.T, test func(*testing.T, made)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) made{"Memory": newMemory, "MySQL": newMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestEvents goes through every change and looks at its events.
func TestEvents(t *testing.T) {
	t.Parallel()
	const high = member.ID(1 << 63)
	eachSite(t, func(t *testing.T, s made) {
		ctx := t.Context()
		upload := func() error {
			_, err := s.Upload(ctx, site.Photo{ID: 7, Owner: 3, Visibility: contacts.Public, DateUpload: 100})
			return err
		}
		steps := []struct {
			name string
			do   func() error
			want []site.Event
		}{
			{"AddMember", func() error { return s.AddMember(ctx, 3, "three") }, nil},
			{"SetContact", func() error { return s.SetContact(ctx, 1, 3, site.Grant{}) }, []site.Event{{"add_contact", 1, 3}}},
			{"SetContact again", func() error { return s.SetContact(ctx, 1, 3, site.Grant{Friend: true}) }, []site.Event{{"add_contact", 1, 3}}},
			{"SetContact high", func() error { return s.SetContact(ctx, high, 3, site.Grant{}) }, []site.Event{{"add_contact", high, 3}}},
			{"SetContact of high", func() error { return s.SetContact(ctx, 1, high, site.Grant{}) }, []site.Event{{"add_contact", 1, high}}},
			{"Upload", upload, []site.Event{{"upload", 3, 0}}},
			{"SetVisibility", func() error { return s.SetVisibility(ctx, 7, contacts.Private) }, nil},
			{"Block", func() error { return s.Block(ctx, 3, 1) }, nil},
			{"Unblock", func() error { return s.Unblock(ctx, 3, 1) }, nil},
			{"DeletePhoto", func() error { return s.DeletePhoto(ctx, 7) }, nil},
			{"RemoveContact", func() error { return s.RemoveContact(ctx, 1, high) }, []site.Event{{"remove_contact", 1, high}}},
			{"RemoveContact of none", func() error { return s.RemoveContact(ctx, 1, 99) }, []site.Event{{"remove_contact", 1, 99}}},
			{"DeleteMember", func() error { return s.DeleteMember(ctx, 3) }, []site.Event{{"remove_contact", 1, 3}, {"remove_contact", high, 3}, {"refill", 3, 0}}},
			{"loading", func() error { return load(ctx, s) }, nil},
		}
		for _, step := range steps {
			before := len(s.events(t))
			must(t, step.do())
			got := slices.Clip(s.events(t)[before:])
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("%s emitted (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

func load(ctx context.Context, s site.Site) error {
	return errors.Join(
		s.LoadMembers(ctx, []site.Member{{ID: 1}}),
		s.LoadContacts(ctx, []site.Relation{{User: 1, Contact: 2}}),
		s.LoadPhotos(ctx, []site.Photo{{Owner: 1, Visibility: contacts.Public, DateUpload: 5}}),
	)
}

func TestUploadIDsAndDates(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s made) {
		ctx := t.Context()
		must(t, s.AddMember(ctx, 1, "one"))
		uploads := []struct{ id, date, wantID, wantLast uint64 }{
			{0, 100, 1, 100},
			{0, 50, 2, 100}, // an old photo takes nothing back
			{41, 200, 41, 200},
			{0, 200, 42, 200},
		}
		for _, u := range uploads {
			id, err := s.Upload(ctx, site.Photo{ID: u.id, Owner: 1, Visibility: contacts.Public, DateUpload: u.date})
			must(t, err)
			last, err := s.store.LastUploads(ctx, []member.ID{1})
			must(t, err)
			if id != u.wantID || last[1] != u.wantLast {
				t.Errorf("uploading %d at %d: id %d and last upload %d, want %d and %d", u.id, u.date, id, last[1], u.wantID, u.wantLast)
			}
		}
	})
}
