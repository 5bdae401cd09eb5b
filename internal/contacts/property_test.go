package contacts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/site"
)

// people are few, so that they meet often; the last two are never members.
var people = []member.ID{1, 2, 3, 4, 5, 1 << 63, math.MaxUint64 - 1, 8, 9}

const strangers = 2

// TestPropertyMySQLAnswersLikeMemory builds random small worlds twice, changes
// both alike, and compares every answer of the SQL with that of the executable
// specification.
func TestPropertyMySQLAnswersLikeMemory(t *testing.T) {
	t.Parallel()
	checkPropertyOn(t, openDB(t))
}

func checkPropertyOn(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	store := contacts.NewMySQL(db)
	rapid.Check(t, func(t *rapid.T) {
		for _, table := range []string{"users", "contacts", "blocks", "photos", "tasks", "broadcast_members"} {
			if _, err := db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
				t.Fatal(err)
			}
		}
		memory := contactstest.NewMemory()
		w := twoWorlds{ctx: ctx, sites: []site.Site{&site.Memory{Store: memory}, site.NewMySQL(db)}}
		w.fill(t)
		w.change(t)
		if _, err := db.ExecContext(ctx, "INSERT INTO contacts (user_id, contact_id) VALUES (?, 0)", people[0]); err != nil { // of no member
			t.Fatal(err)
		}
		chunked := store.WithChunks(rapid.IntRange(1, 3).Draw(t, "owners in a statement"))
		compare(t, ctx, memory, chunked)
		compareSight(t, ctx, db, memory)
	})
}

// twoWorlds does everything to both sites.
type twoWorlds struct {
	ctx   context.Context
	sites []site.Site
}

func (w twoWorlds) both(t *rapid.T, do func(site.Site) error) {
	for _, s := range w.sites {
		if err := do(s); err != nil {
			t.Fatalf("%T: %v", s, err)
		}
	}
}

var (
	anyone     = rapid.SampledFrom(people)
	visibility = rapid.SampledFrom(contacts.Classes())
	date       = rapid.Uint64Range(1, 6) // few, so that there are ties
	grant      = rapid.Custom(func(t *rapid.T) site.Grant {
		return site.Grant{Friend: rapid.Bool().Draw(t, "friend"), Family: rapid.Bool().Draw(t, "family")}
	})
)

const photos = 12

func (w twoWorlds) fill(t *rapid.T) {
	var members []site.Member
	for _, id := range people[:len(people)-strangers] {
		if rapid.IntRange(0, 9).Draw(t, "member") > 0 {
			members = append(members, site.Member{ID: id, Username: "u" + id.String()})
		}
	}
	w.both(t, func(s site.Site) error { return s.LoadMembers(w.ctx, members) })
	relations := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) site.Relation {
		return site.Relation{User: anyone.Draw(t, "user"), Contact: anyone.Draw(t, "contact"), Grant: grant.Draw(t, "grant")}
	}), 0, 30).Draw(t, "relations")
	w.both(t, func(s site.Site) error { return s.LoadContacts(w.ctx, relations) })
	var list []site.Photo
	for id := range uint64(rapid.IntRange(0, photos).Draw(t, "photos")) {
		list = append(list, w.draw(t, id+1))
	}
	w.both(t, func(s site.Site) error { return s.LoadPhotos(w.ctx, list) })
}

func (w twoWorlds) draw(t *rapid.T, id uint64) site.Photo {
	return site.Photo{
		ID: id, Owner: anyone.Draw(t, "owner"), Title: fmt.Sprintf("photo %d ☀", id),
		Visibility: visibility.Draw(t, "visibility"), DateUpload: date.Draw(t, "date"),
	}
}

func (w twoWorlds) change(t *rapid.T) {
	for i := range rapid.IntRange(0, 6).Draw(t, "changes") {
		a, b := anyone.Draw(t, "a"), anyone.Draw(t, "b")
		id, v, g := rapid.Uint64Range(1, photos).Draw(t, "photo"), visibility.Draw(t, "v"), grant.Draw(t, "g")
		added := w.draw(t, photos+1+uint64(i))
		changes := []func(site.Site) error{
			func(s site.Site) error { return s.SetContact(w.ctx, a, b, g) },
			func(s site.Site) error { return s.RemoveContact(w.ctx, a, b) },
			func(s site.Site) error { return s.Block(w.ctx, a, b) },
			func(s site.Site) error { return s.Block(w.ctx, a, b) },
			func(s site.Site) error { return s.Unblock(w.ctx, a, b) },
			func(s site.Site) error { return s.SetVisibility(w.ctx, id, v) },
			func(s site.Site) error { return s.DeletePhoto(w.ctx, id) },
			func(s site.Site) error { return s.DeleteMember(w.ctx, a) },
			// A member that comes back has no photos: an owner of photos whose last
			// upload is missing is nothing that a site brings about.
			func(s site.Site) error { return errors.Join(s.DeleteMember(w.ctx, a), s.AddMember(w.ctx, a, "back")) },
			func(s site.Site) error { _, err := s.Upload(w.ctx, added); return err },
		}
		w.both(t, changes[rapid.IntRange(0, len(changes)-1).Draw(t, "change")])
	}
}

// changeBroadcasts changes who is a broadcast member, in both stores alike.
func changeBroadcasts(t *rapid.T, ctx context.Context, want, got Store) {
	for range rapid.IntRange(0, 12).Draw(t, "changes of broadcast members") {
		id, at, named := anyone.Draw(t, "broadcast member"), date.Draw(t, "at"), rapid.Bool().Draw(t, "named")
		changes := []func(Store) error{
			func(s Store) error { return s.AddBroadcast(ctx, id, named) },
			func(s Store) error { return s.AddBroadcast(ctx, id, named) },
			func(s Store) error { return s.RaiseBroadcast(ctx, id, at) },
			func(s Store) error { _, err := s.LeaveBroadcast(ctx, id); return err },
			func(s Store) error {
				rows, err := s.Broadcasts(ctx, []member.ID{id})
				return errors.Join(err, s.DeleteBroadcast(ctx, id, rows[id].Leaving))
			},
			func(s Store) error { return s.DeleteBroadcast(ctx, id, 1<<50) }, // it left at another time
		}
		change := changes[rapid.IntRange(0, len(changes)-1).Draw(t, "change of broadcast members")]
		for _, s := range []Store{want, got} {
			if err := change(s); err != nil && !errors.Is(err, contacts.ErrNoMember) && !errors.Is(err, contacts.ErrNoBroadcast) {
				t.Fatalf("%T: %v", s, err)
			}
		}
	}
}

// compare compares all answers of both stores about all people.
func compare(t *rapid.T, ctx context.Context, want, got Store) {
	changeBroadcasts(t, ctx, want, got)
	bound := date.Draw(t, "bound")
	limit := rapid.IntRange(1, 5).Draw(t, "limit")
	after := anyone.Draw(t, "after")
	same(t, "LastUploads", want, got, func(s Store) (any, error) { return s.LastUploads(ctx, people) })
	same(t, "TopContacts", want, got, func(s Store) (any, error) { return s.TopContacts(ctx, people, limit) })
	same(t, "Relations", want, got, func(s Store) (any, error) { return s.Relations(ctx, allPairs()) })
	for _, id := range people {
		v := contacts.Viewer{ID: id}
		same(t, "Walk", want, got, func(s Store) (any, error) {
			walked, err := s.Walk(ctx, v, limit)
			walked.Trace = contacts.WalkTrace{} // Memory always looks at all contacts
			return walked, err
		})
		same(t, "Details", want, got, func(s Store) (any, error) { return s.Details(ctx, v, people) })
		same(t, "Compare", want, got, func(s Store) (any, error) { return s.Compare(ctx, v, people[:4], bound) })
		same(t, "HasFollowers", want, got, func(s Store) (any, error) { return s.HasFollowers(ctx, id, limit) })
		same(t, "Broadcasts", want, got, func(s Store) (any, error) {
			rows, err := s.Broadcasts(ctx, people)
			for id, b := range rows {
				b.Leaving = min(b.Leaving, 1) // it is when the member left, by the store's clock
				rows[id] = b
			}
			return rows, err
		})
		same(t, "Standings", want, got, func(s Store) (any, error) { return contacts.Standings(ctx, s, v, people) })
		same(t, "FollowerPages", want, got, func(s Store) (any, error) {
			return s.FollowerPages(ctx, []contacts.FollowerPage{{Of: id}, {Of: id, After: after}, {Of: after, After: id}}, limit)
		})
	}
	for _, p := range allPairs() {
		same(t, "VisiblePhotos", want, got, func(s Store) (any, error) {
			return contacts.Photos(ctx, s, contacts.Viewer{ID: p.User}, p.Contact, limit)
		})
		same(t, "Look", want, got, func(s Store) (any, error) { return s.Look(ctx, contacts.Viewer{ID: p.User}, p.Contact, limit, bound) })
	}
}

// same compares two answers, or the texts of two errors: errors of the domain are
// alike, and further errors differ, as they should.
func same(t *rapid.T, what string, want, got Store, ask func(Store) (any, error)) {
	wanted, wantErr := ask(want)
	answer, err := ask(got)
	if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(err)); diff != "" {
		t.Fatalf("%s: errors (-Memory +MySQL):\n%s", what, diff)
	}
	if diff := cmp.Diff(wanted, answer); diff != "" {
		t.Fatalf("%s (-Memory +MySQL):\n%s", what, diff)
	}
}

func allPairs() []contacts.Pair {
	var pairs []contacts.Pair
	for _, user := range people {
		for _, contact := range people {
			pairs = append(pairs, contacts.Pair{User: user, Contact: contact})
		}
	}
	return pairs
}
