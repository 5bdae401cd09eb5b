package contacts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// walk is Walk without its trace, which is another for each implementation.
func (w world) walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	walked, err := w.Walk(ctx, v, limit)
	walked.Trace = contacts.WalkTrace{}
	return walked, err
}

func testWalk(t *testing.T, w world) {
	w.members(t, 1, 2, 3, 4)
	w.calls(t, 1, 2, 3)
	w.public(t, 1, 2, 100)
	w.public(t, 2, 3, 200)
	w.public(t, 3, 3, 150)
	w.photo(t, 4, 2, contacts.Friends, 300) // 2 uploaded last, but 3 has the newest visible photo
	w.public(t, 5, 4, 400)                  // no contact
	want := contacts.Walked{Indexable: true, Album: contacts.Album{
		Contact: &contacts.Profile{ID: 3, Username: "member 3"},
		Photos: []contacts.Photo{
			{ID: 2, Title: "a photo", DateUpload: 200}, {ID: 3, Title: "a photo", DateUpload: 150},
		},
	}}
	got, err := w.walk(t.Context(), viewer(1), 10)
	equal(t, "Walk", got, err, want)
	want.Photos = want.Photos[:1]
	got, err = w.walk(t.Context(), viewer(1), 1)
	equal(t, "Walk with limit 1", got, err, want)
}

// testWalkDeep: the only visible photo belongs to nearly the last of many
// contacts, so the walk has to go through several chunks.
func testWalkDeep(t *testing.T, w world) {
	const count = 1500
	ids := sequence(10, count)
	w.members(t, append(ids, 1)...)
	w.calls(t, 1, ids...)
	photos := make([]site.Photo, count)
	for i, id := range ids {
		photos[i] = site.Photo{ID: uint64(id), Owner: id, Visibility: contacts.Friends, DateUpload: 10_000 - uint64(id)}
	}
	last := &photos[count-3]
	last.Visibility = contacts.Public
	must(t, w.site.LoadPhotos(t.Context(), photos))
	got, err := w.walk(t.Context(), viewer(1), 10)
	equal(t, "Walk", got, err, contacts.Walked{Indexable: true, Album: contacts.Album{
		Contact: &contacts.Profile{ID: last.Owner, Username: "member " + last.Owner.String()},
		Photos:  []contacts.Photo{{ID: last.ID, DateUpload: last.DateUpload}},
	}})
}

// testWalkTies: many contacts uploaded within one second, and of all of them the
// last in the walk's order has the photo with the highest id.
func testWalkTies(t *testing.T, w world) {
	const count = 1000
	ids := sequence(10, count)
	w.members(t, append(ids, 1)...)
	w.calls(t, 1, ids...)
	photos := make([]site.Photo, count)
	for i, id := range ids {
		photos[i] = site.Photo{ID: 100_000 - uint64(id), Owner: id, Visibility: contacts.Public, DateUpload: 100}
	}
	must(t, w.site.LoadPhotos(t.Context(), photos))
	got, err := w.walk(t.Context(), viewer(1), 10)
	equal(t, "Walk", got, err, contacts.Walked{Indexable: true, Album: contacts.Album{
		Contact: &contacts.Profile{ID: 10, Username: "member 10"},
		Photos:  []contacts.Photo{{ID: 99_990, DateUpload: 100}},
	}})
}

func testWalkNothing(t *testing.T, w world) {
	w.members(t, 1, 2, 3, 4)
	w.calls(t, 2, 3, 99) // 3 uploaded for itself alone
	w.photo(t, 2, 3, contacts.Private, 100)
	w.calls(t, 4, 1, 2)
	w.photo(t, 1, 1, contacts.Friends, 100)
	for id, want := range map[member.ID]contacts.Walked{
		1: {},                // no contacts
		2: {},                // none that ever uploaded in public
		4: {Indexable: true}, // none with a visible photo
	} {
		got, err := w.walk(t.Context(), viewer(id), 10)
		equal(t, "Walk of "+id.String(), got, err, want)
	}
}

// testWalkTrace: a walk says how many contacts it looked at, and its bound is true.
func testWalkTrace(t *testing.T, w world) {
	ids := sequence(10, 600)
	w.members(t, append(ids, 1, 2, 3)...)
	w.calls(t, 1, append(ids, 3)...) // 3 never uploaded
	photos := make([]site.Photo, len(ids))
	for i, id := range ids {
		photos[i] = site.Photo{Owner: id, Visibility: contacts.Friends, DateUpload: 10_000 - uint64(id)}
	}
	photos[100].Visibility = contacts.Public
	must(t, w.site.LoadPhotos(t.Context(), photos))
	walked, err := w.Walk(t.Context(), viewer(1), 10)
	must(t, err)
	looked, bound := walked.Trace.LookedAt, walked.Trace.Bound
	if looked < 101 || looked > 600 || bound >= walked.Photos[0].DateUpload {
		t.Errorf("trace %+v, the newest photo is of %d", walked.Trace, walked.Photos[0].DateUpload)
	}
	// All contacts that were not looked at uploaded at the bound or before.
	if (bound == 0) != (looked == 600) || bound > 0 && looked < 600 && photos[looked].DateUpload > bound {
		t.Errorf("trace %+v, the next contact uploaded at %d", walked.Trace, photos[min(looked, 599)].DateUpload)
	}
	must(t, w.site.SetVisibility(t.Context(), walked.Photos[0].ID, contacts.Private))
	walked, err = w.Walk(t.Context(), viewer(1), 10)
	must(t, err)
	if walked.Trace.LookedAt != 600 || walked.Trace.Bound != 0 {
		t.Errorf("without a visible photo: trace %+v, want all of 600 looked at and no bound", walked.Trace)
	}
	walked, err = w.Walk(t.Context(), viewer(2), 10)
	must(t, err)
	if walked.Trace.LookedAt != 0 || walked.Trace.Bound != 0 {
		t.Errorf("without contacts: trace %+v", walked.Trace)
	}
}

func testMissingViewer(t *testing.T, w world) {
	w.members(t, 2)
	w.calls(t, 1, 2) // a row that is left of a deleted member
	w.public(t, 1, 2, 100)
	for _, id := range []member.ID{1, 99} {
		if _, err := w.Walk(t.Context(), viewer(id), 10); !errors.Is(err, contacts.ErrNoMember) {
			t.Errorf("Walk of missing %d: %v, want ErrNoMember", id, err)
		}
		for _, owners := range [][]member.ID{nil, {2}, {2, 3}} {
			if _, err := contacts.Standings(t.Context(), w, viewer(id), owners); !errors.Is(err, contacts.ErrNoMember) {
				t.Errorf("Standings of %v for missing %d: %v, want ErrNoMember", owners, id, err)
			}
			if _, err := w.Details(t.Context(), viewer(id), owners); !errors.Is(err, contacts.ErrNoMember) {
				t.Errorf("Details of %v for missing %d: %v, want ErrNoMember", owners, id, err)
			}
		}
		got, err := contacts.Photos(t.Context(), w, viewer(id), 2, 10)
		equal(t, "VisiblePhotos for a missing viewer", got, err, contacts.Album{})
	}
}

func testMissingOwner(t *testing.T, w world) {
	w.members(t, 1, 3)
	w.calls(t, 1, 2, 3) // 2 is no member (any more), but its photos are still there
	w.public(t, 1, 2, 200)
	w.public(t, 2, 3, 100)
	standings, err := contacts.Standings(t.Context(), w, viewer(1), []member.ID{2, 3})
	equal(t, "Standings", standings, err, []contacts.Standing{
		{Owner: 2}, {Owner: 3, IsContact: true, Newest: &contacts.Photo{ID: 2, DateUpload: 100}},
	})
	album, err := contacts.Photos(t.Context(), w, viewer(1), 2, 10)
	equal(t, "VisiblePhotos", album, err, contacts.Album{})
	walked, err := w.Walk(t.Context(), viewer(1), 10)
	must(t, err)
	if walked.Contact == nil || walked.Contact.ID != 3 {
		t.Errorf("Walk chose %+v, want member 3", walked.Contact)
	}
	must(t, w.site.DeleteMember(t.Context(), 3))
	related, err := w.Relations(t.Context(), []contacts.Pair{{User: 1, Contact: 2}, {User: 1, Contact: 3}})
	equal(t, "Relations after a deletion", related, err, map[contacts.Pair]uint64{})
	walked, err = w.walk(t.Context(), viewer(1), 10)
	equal(t, "Walk after a deletion", walked, err, contacts.Walked{})
}

// testNoLimit: a limit of zero or less returns nothing.
func testNoLimit(t *testing.T, w world) {
	w.members(t, 1, 2)
	w.calls(t, 1, 2)
	w.public(t, 1, 2, 100)
	for _, limit := range []int{0, -1} {
		top, err := w.TopContacts(t.Context(), []member.ID{1}, limit)
		equal(t, "TopContacts", top, err, map[member.ID][]contacts.Contact{})
		pages, err := w.FollowerPages(t.Context(), []contacts.FollowerPage{{Of: 2}}, limit)
		equal(t, "FollowerPages", pages, err, [][]member.ID{nil})
		album, err := contacts.Photos(t.Context(), w, viewer(1), 2, limit)
		equal(t, "VisiblePhotos", album, err, contacts.Album{})
		walked, err := w.walk(t.Context(), viewer(1), limit)
		equal(t, "Walk", walked, err, contacts.Walked{Indexable: true})
	}
}

func testCancelled(t *testing.T, w world) {
	w.members(t, 1, 2)
	for name, ask := range callsOf(w.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := ask(ctx)
		if !errors.Is(err, context.Canceled) || errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled alone", name, err)
		}
	}
}

// callsOf returns a call of each of the store's methods, by name: members 1
// and 2 are their arguments.
func callsOf(s Store) map[string]func(context.Context) error {
	v := viewer(1)
	return map[string]func(context.Context) error{
		"LastUploads": func(ctx context.Context) error {
			_, err := s.LastUploads(ctx, []member.ID{1})
			return err
		},
		"Relations": func(ctx context.Context) error {
			_, err := s.Relations(ctx, []contacts.Pair{{User: 1, Contact: 2}})
			return err
		},
		"TopContacts": func(ctx context.Context) error {
			_, err := s.TopContacts(ctx, []member.ID{1}, 1)
			return err
		},
		"FollowerPages": func(ctx context.Context) error {
			_, err := s.FollowerPages(ctx, []contacts.FollowerPage{{Of: 1}}, 1)
			return err
		},
		"Look": func(ctx context.Context) error {
			_, err := s.Look(ctx, v, 2, 1, 0)
			return err
		},
		"Compare": func(ctx context.Context) error {
			_, err := s.Compare(ctx, v, []member.ID{2}, 0)
			return err
		},
		"Walk": func(ctx context.Context) error {
			_, err := s.Walk(ctx, v, 1)
			return err
		},
		"Details": func(ctx context.Context) error {
			_, err := s.Details(ctx, v, []member.ID{2})
			return err
		},
	}
}
