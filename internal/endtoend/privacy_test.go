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
}

// hidings are all the ways to hide a photo.
func hidings() map[string]hiding {
	see := func(v contacts.Visibility) func(context.Context, site.Changer) error {
		return func(ctx context.Context, s site.Changer) error { return s.SetVisibility(ctx, pearl, v) }
	}
	relate := func(g site.Grant) func(context.Context, site.Changer) error {
		return func(ctx context.Context, s site.Changer) error { return s.SetContact(ctx, star, viewer, g) }
	}
	friend, family := site.Grant{Friend: true}, site.Grant{Family: true}
	return map[string]hiding{
		"made private":                {contacts.Public, friend, see(contacts.Private), see(contacts.Public)},
		"made friends' for no friend": {contacts.Public, family, see(contacts.Friends), see(contacts.Public)},
		"made family's for no family": {contacts.Public, friend, see(contacts.Family), see(contacts.Public)},
		"friend no more":              {contacts.Friends, friend, relate(site.Grant{}), relate(friend)},
		"friend no more, but family":  {contacts.Friends, friend, relate(family), relate(friend)},
		"family no more":              {contacts.FriendsFamily, family, relate(site.Grant{}), relate(family)},
		"grant removed": {
			contacts.FriendsFamily, friend,
			func(ctx context.Context, s site.Changer) error { return s.RemoveContact(ctx, star, viewer) }, relate(friend),
		},
		"contact removed": {
			contacts.Public,
			site.Grant{},
			func(ctx context.Context, s site.Changer) error { return s.RemoveContact(ctx, viewer, star) },
			func(ctx context.Context, s site.Changer) error { return s.SetContact(ctx, viewer, star, site.Grant{}) },
		},
		"blocked": {
			contacts.Public, friend,
			func(ctx context.Context, s site.Changer) error { return s.Block(ctx, star, viewer) },
			func(ctx context.Context, s site.Changer) error { return s.Unblock(ctx, star, viewer) },
		},
		"blocked by the viewer": {
			contacts.Public, friend,
			func(ctx context.Context, s site.Changer) error { return s.Block(ctx, viewer, star) },
			func(ctx context.Context, s site.Changer) error { return s.Unblock(ctx, viewer, star) },
		},
		"photo deleted": {
			contacts.Public, friend,
			func(ctx context.Context, s site.Changer) error { return s.DeletePhoto(ctx, pearl) },
			func(ctx context.Context, s site.Changer) error {
				_, err := s.Upload(ctx, site.Photo{ID: pearl, Owner: star, Visibility: contacts.Public, DateUpload: 2000})
				return err
			},
		},
		"member deleted": {
			contacts.Public, friend,
			func(ctx context.Context, s site.Changer) error { return s.DeleteMember(ctx, star) }, nil,
		},
	}
}

// allHidings are the hidings, each also with a star that is a broadcast member.
func allHidings() map[string]stagedHiding {
	all := make(map[string]stagedHiding)
	for name, h := range hidings() {
		all[name], all[name+", by a broadcast member"] = stagedHiding{h, false}, stagedHiding{h, true}
	}
	return all
}

// stagedHiding is a hiding, perhaps by a broadcast member.
type stagedHiding struct {
	hiding

	broadcasts bool
}

// setUp makes the small world. If the star is a broadcast member, it is not in the viewer's set.
func (h stagedHiding) setUp(t *testing.T, g *ground) {
	t.Helper()
	h.hiding.setUp(t, g)
	if !h.broadcasts {
		return
	}
	g.exec(t, "INSERT INTO broadcast_members (member_id, last_upload, named) VALUES (?, 2000, TRUE)", star)
	n, err := g.client.ZRem(t.Context(), index.UserKey(viewer), star.String()).Result()
	must(t, err)
	if n != 1 {
		t.Fatal("the star was not in the viewer's set")
	}
}

// setUp makes the small world. The viewer's set is in place, and the viewer sees the pearl.
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
