package contacts_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// Store is the common part of [contacts.MySQL] and [contactstest.Memory].
type Store interface {
	photoStore
	memberStore
	broadcastStore

	LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error)
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
}

// photoStore answers for a viewer.
type photoStore interface {
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	Details(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Detail, error)
}

// broadcastStore has the broadcast members.
type broadcastStore interface {
	Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error)
	Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error)
	Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error)
	AddBroadcast(ctx context.Context, id member.ID, named bool) error
	RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error
	LeaveBroadcast(ctx context.Context, id member.ID) (contacts.Broadcast, error)
	DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error
	HasFollowers(ctx context.Context, id member.ID, n int) (bool, error)
}

// memberStore goes through the members.
type memberStore interface {
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
	CountMembers(ctx context.Context, first, last member.ID) (int64, error)
	NthMember(ctx context.Context, after member.ID, n int64) (member.ID, error)
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
}

// testStore runs the conformance suite on the stores that open returns, each empty
// and with the site whose data it reads.
func testStore(t *testing.T, open func(*testing.T) (Store, site.Site)) {
	t.Helper()
	cases := map[string]func(*testing.T, world){
		"LastUploads":        testLastUploads,
		"Relations":          testRelations,
		"ManyRelations":      testManyRelations,
		"TopContacts":        testTopContacts,
		"TopContacts/one":    testTopOfOne,
		"TopContacts/many":   testTopOfMany,
		"Followers":          testFollowers,
		"FollowerPages":      testFollowerPages,
		"Broadcasts/many":    testTooManyBroadcasts,
		"VisiblePhotos":      testVisiblePhotos,
		"VisiblePhotos/live": testLive,
		"Standings":          testStandings,
		"Walk":               testWalk,
		"Walk/deep":          testWalkDeep,
		"Walk/ties":          testWalkTies,
		"Walk/nothing":       testWalkNothing,
		"Walk/trace":         testWalkTrace,
		"MissingViewer":      testMissingViewer,
		"MissingOwner":       testMissingOwner,
		"LargeIDs":           testLargeIDs,
		"Members":            testMembers,
		"Newest":             testNewest,
		"NoLimit":            testNoLimit,
		"Cancelled":          testCancelled,
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, s := open(t)
			test(t, world{Store: store, site: s})
		})
	}
}

// world is a store under test with its site, and shorthand for filling it.
type world struct {
	Store
	site site.Site
}

func viewer(id member.ID) contacts.Viewer { return contacts.Viewer{ID: id} }

func (w world) members(t *testing.T, ids ...member.ID) {
	t.Helper()
	list := make([]site.Member, len(ids))
	for i, id := range ids {
		list[i] = site.Member{ID: id, Username: "member " + id.String()}
	}
	must(t, w.site.LoadMembers(t.Context(), list))
}

// calls makes each of others a contact of user, without grants.
func (w world) calls(t *testing.T, user member.ID, others ...member.ID) {
	t.Helper()
	list := make([]site.Relation, len(others))
	for i, other := range others {
		list[i] = site.Relation{User: user, Contact: other}
	}
	must(t, w.site.LoadContacts(t.Context(), list))
}

// public uploads a public photo.
func (w world) public(t *testing.T, id uint64, owner member.ID, date uint64) {
	t.Helper()
	w.photo(t, id, owner, contacts.Public, date)
}

func (w world) photo(t *testing.T, id uint64, owner member.ID, v contacts.Visibility, date uint64) {
	t.Helper()
	must(t, w.site.LoadPhotos(t.Context(), []site.Photo{
		{ID: id, Owner: owner, Title: "a photo", Visibility: v, DateUpload: date},
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal compares the result of a method, without error.
func equal[T any](t *testing.T, what string, got T, err error, want T) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func sequence(from, count member.ID) []member.ID {
	ids := make([]member.ID, count)
	for i := range count {
		ids[i] = from + i
	}
	return ids
}
