package endtoend_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// A small world for privacy: the star is the viewer's most recently active contact, and the test hides the
// star's newest photo.
const (
	viewer = member.ID(1)
	star   = member.ID(2)
	pearl  = uint64(777)
)

// hiding is a change that takes the pearl, or the star with everything, out of
// the viewer's sight.
type hiding struct {
	visibility contacts.Visibility // of the pearl, before
	grant      site.Grant          // by the star to the viewer, before
	hide       func(context.Context, site.Changer) error
	show       func(context.Context, site.Changer) error // takes hide back; nil: nothing does
	broadcasts bool                                      // the star is a broadcast member
}

// hidings are all the ways to hide a photo.
func hidings() map[string]hiding {
	type change = func(context.Context, site.Changer) error
	of := func(v contacts.Visibility, g site.Grant, hide, show change) hiding {
		return hiding{visibility: v, grant: g, hide: hide, show: show}
	}
	see := func(v contacts.Visibility) change {
		return func(ctx context.Context, s site.Changer) error { return s.SetVisibility(ctx, pearl, v) }
	}
	grant := func(from, to member.ID, g site.Grant) change {
		return func(ctx context.Context, s site.Changer) error { return s.SetContact(ctx, from, to, g) }
	}
	remove := func(from, to member.ID) change {
		return func(ctx context.Context, s site.Changer) error { return s.RemoveContact(ctx, from, to) }
	}
	block := func(from, to member.ID) (hide, show change) {
		return func(ctx context.Context, s site.Changer) error { return s.Block(ctx, from, to) },
			func(ctx context.Context, s site.Changer) error { return s.Unblock(ctx, from, to) }
	}
	byStar, unblockStar := block(star, viewer)
	byViewer, unblockViewer := block(viewer, star)
	public, none, friend, family := contacts.Public, site.Grant{}, site.Grant{Friend: true}, site.Grant{Family: true}
	return map[string]hiding{
		"made private":                of(public, friend, see(contacts.Private), see(public)),
		"made friends' for no friend": of(public, family, see(contacts.Friends), see(public)),
		"made family's for no family": of(public, friend, see(contacts.Family), see(public)),
		"friend no more":              of(contacts.Friends, friend, grant(star, viewer, none), grant(star, viewer, friend)),
		"friend no more, but family":  of(contacts.Friends, friend, grant(star, viewer, family), grant(star, viewer, friend)),
		"family no more":              of(contacts.FriendsFamily, family, grant(star, viewer, none), grant(star, viewer, family)),
		"grant removed":               of(contacts.FriendsFamily, friend, remove(star, viewer), grant(star, viewer, friend)),
		"contact removed":             of(public, none, remove(viewer, star), grant(viewer, star, none)),
		"blocked":                     of(public, friend, byStar, unblockStar),
		"blocked by the viewer":       of(public, friend, byViewer, unblockViewer),
		"photo deleted": of(public, friend,
			func(ctx context.Context, s site.Changer) error { return s.DeletePhoto(ctx, pearl) },
			func(ctx context.Context, s site.Changer) error {
				_, err := s.Upload(ctx, site.Photo{ID: pearl, Owner: star, Visibility: public, DateUpload: 2000})
				return err
			}),
		"member deleted": of(public, friend, func(ctx context.Context, s site.Changer) error { return s.DeleteMember(ctx, star) }, nil),
	}
}

// allHidings are the hidings, each also with a star that is a broadcast member.
func allHidings() map[string]hiding {
	all := hidings()
	for name, h := range hidings() {
		h.broadcasts = true
		all[name+", by a broadcast member"] = h
	}
	return all
}

// setUp makes the small world. The viewer's set is in place, without a star that is a broadcast member, and the viewer
// sees the pearl.
func (h hiding) setUp(t *testing.T, g *ground) {
	t.Helper()
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for id := viewer; id <= 9; id++ {
		members = append(members, site.Member{ID: id, Username: "member " + id.String()})
		if id != viewer {
			relations = append(relations, site.Relation{User: viewer, Contact: id})
			photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Public, DateUpload: 1000 - uint64(id)})
		}
	}
	relations = append(relations, site.Relation{User: star, Contact: viewer, Grant: h.grant})
	photos = append(photos, site.Photo{ID: pearl, Owner: star, Visibility: h.visibility, DateUpload: 2000})
	must(t, g.site.LoadMembers(t.Context(), members))
	must(t, g.site.LoadContacts(t.Context(), relations))
	must(t, g.site.LoadPhotos(t.Context(), photos))
	g.warm(t, []member.ID{viewer})
	if h.broadcasts {
		g.exec(t, "INSERT INTO broadcast_members (member_id, last_upload, named) VALUES (?, 2000, TRUE)", star)
		n, err := g.client.ZRem(t.Context(), index.UserKey(viewer), star.String()).Result()
		must(t, err)
		if n != 1 {
			t.Fatal("the star was not in the viewer's set")
		}
	}
}

// TestPrivacyWaitsForNoTask: the very next response hides a photo that the viewer may no longer see, though
// no process runs tasks, whether the answer comes from the index or from the database.
func TestPrivacyWaitsForNoTask(t *testing.T) {
	t.Parallel()
	for name, h := range allHidings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, 4)
			h.setUp(t, g)
			readers := g.readersBySource(t)
			checkPearl(t, g, readers, true)
			must(t, h.hide(t.Context(), g.site))
			checkPearl(t, g, readers, false)
			if h.show != nil {
				must(t, h.show(t.Context(), g.site))
				checkPearl(t, g, readers, true)
			}
		})
	}
}

// readersBySource returns a reader whose index works and a reader whose index does not.
func (g *ground) readersBySource(t *testing.T) map[recent.Source]*recent.Reader {
	t.Helper()
	p, store := g.process(t, "reads only"), contacts.NewMySQL(openMySQL(t, g.dsn))
	walker := recent.NewReader(noIndex{}, lingeringStore{store}, p.hints, recent.Options{Min: g.settings.Min})
	return map[recent.Source]*recent.Reader{recent.FromIndex: p.reader, recent.FromDatabase: walker}
}

// lingeringStore waits between the end of a walk and its return. In this time no other reader may join the
// walk, which saw an earlier state.
type lingeringStore struct{ recent.Store }

func (s lingeringStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	walked, err := s.Store.Walk(ctx, v, limit)
	hesitate(ctx)
	return walked, err
}

type noIndex struct{}

func (noIndex) Candidates(context.Context, member.ID) ([]index.Entry, error) {
	return nil, fmt.Errorf("candidates: %w", index.ErrMissing)
}

// checkPearl makes sure that both sources show the pearl, or both do not, and
// that their answers are otherwise right, too.
func checkPearl(t *testing.T, g *ground, readers map[recent.Source]*recent.Reader, visible bool) {
	t.Helper()
	want, err := site.AskPlainly(t.Context(), g.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, 10)
	must(t, err)
	for source, reader := range readers {
		answer, err := reader.Read(t.Context(), contacts.Viewer{ID: viewer}, 10)
		must(t, err)
		if answer.Source != source {
			t.Errorf("the answer is from %s, want %s: %+v", answer.Source, source, answer.Trace)
		}
		if showsPearl(answer) != visible {
			t.Errorf("from %s: the photo is shown: %v, want %v", source, !visible, visible)
		}
		if diff := cmp.Diff(want, answer.Album); diff != "" {
			t.Errorf("from %s (-plain SQL +answer):\n%s", source, diff)
		}
	}
}

func showsPearl(answer recent.Answer) bool {
	return slices.ContainsFunc(answer.Photos, func(p contacts.Photo) bool { return p.ID == pearl })
}
