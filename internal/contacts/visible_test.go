package contacts_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// relation is one way in which an owner and a viewer may stand to each other.
type relation struct {
	called   bool // the viewer calls the owner a contact
	granting bool // the owner calls the viewer a contact, granting:
	grant    site.Grant
	blocked  bool // the owner blocks the viewer
	blocks   bool // the viewer blocks the owner
}

func allRelations() []relation {
	var all []relation
	for bits := range 1 << 6 {
		is := func(bit int) bool { return bits&(1<<bit) != 0 }
		r := relation{
			called: is(0), granting: is(1), grant: site.Grant{Friend: is(2), Family: is(3)}, blocked: is(4), blocks: is(5),
		}
		if r.granting || r.grant == (site.Grant{}) { // no grant without a row
			all = append(all, r)
		}
	}
	return all
}

// shows is the privacy rule, written once more.
func (r relation) shows(v contacts.Visibility) bool {
	return r.called && !r.blocked && !r.blocks && v.ShownTo(r.granted())
}

func (r relation) granted() contacts.Granted {
	return contacts.Granted{Contact: r.granting, Friend: r.grant.Friend, Family: r.grant.Family, Follows: r.called}
}

// TestClasses holds the rule of each class to its word. Only public photos are
// shown to a member of whom the owner says nothing.
func TestClasses(t *testing.T) {
	t.Parallel()
	for _, r := range allRelations() {
		g := r.granted()
		said := map[contacts.Visibility]bool{
			contacts.Private:       false,
			contacts.Friends:       g.Friend,
			contacts.Family:        g.Family,
			contacts.FriendsFamily: g.Friend || g.Family,
			contacts.Followers:     g.Follows,
			contacts.Public:        true,
			"a class of no name":   false,
		}
		for _, v := range contacts.Classes() {
			if _, isSaid := said[v]; !isSaid && g == (contacts.Granted{}) {
				said[v] = false
			}
		}
		for v, want := range said {
			if got := v.ShownTo(g); got != want {
				t.Errorf("a %s photo is shown to a viewer with %+v: %t, want %t", v, g, got, want)
			}
		}
	}
}

// TestClassesAreThoseOfTheTable compares them with the column that schema.sql makes.
func TestClassesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	var got string
	err := openDB(t).QueryRowContext(t.Context(), "SELECT column_type FROM information_schema.columns"+
		" WHERE table_schema = DATABASE() AND table_name = 'photos' AND column_name = 'visibility'").Scan(&got)
	equal(t, "the type of photos.visibility", got, err, visibilityEnum())
}

// visibilityEnum is a type of column that has all classes.
func visibilityEnum() string {
	var words []string
	for _, v := range contacts.Classes() {
		words = append(words, "'"+string(v)+"'")
	}
	return "enum(" + strings.Join(words, ",") + ")"
}

var visibilities = contacts.Classes()

// testPrivacy goes through every class × grant × block × direction: one owner
// for each class, one viewer for each relation, standing so to all owners.
func testPrivacy(t *testing.T, w world) {
	owners := ownersOfEachClass(t, w)
	for i, r := range allRelations() {
		v := viewer(member.ID(1000 + i))
		w.relate(t, v, owners, r)
		checkPrivacy(t, w, v, owners, r)
	}
}

// ownersOfEachClass adds an owner for each class, which has one photo.
func ownersOfEachClass(t *testing.T, w world) []member.ID {
	t.Helper()
	owners := sequence(1, member.ID(len(visibilities)))
	w.members(t, owners...)
	for i, v := range visibilities {
		w.photo(t, uint64(owners[i]), owners[i], v, 100)
	}
	return owners
}

func (w world) relate(t *testing.T, v contacts.Viewer, owners []member.ID, r relation) {
	t.Helper()
	w.members(t, v.ID)
	var rows []site.Relation
	for _, owner := range owners {
		if r.called { // the viewer's grants do not matter: so all
			rows = append(rows, site.Relation{User: v.ID, Contact: owner, Grant: site.Grant{Friend: true, Family: true}})
		}
		if r.granting {
			rows = append(rows, site.Relation{User: owner, Contact: v.ID, Grant: r.grant})
		}
		if r.blocked {
			must(t, w.site.Block(t.Context(), owner, v.ID))
		}
		if r.blocks {
			must(t, w.site.Block(t.Context(), v.ID, owner))
		}
	}
	must(t, w.site.LoadContacts(t.Context(), rows))
}

func checkPrivacy(t *testing.T, w world, v contacts.Viewer, owners []member.ID, r relation) {
	t.Helper()
	standings, err := contacts.Standings(t.Context(), w, v, owners)
	must(t, err)
	for i, owner := range owners {
		what := fmt.Sprintf("%s photo under %+v", visibilities[i], r)
		visible := r.shows(visibilities[i])
		album, err := contacts.Photos(t.Context(), w, v, owner, 10)
		must(t, err)
		if got := len(album.Photos) == 1 && album.Contact != nil && album.Photos[0].ID == uint64(owner); got != visible {
			t.Errorf("%s: VisiblePhotos: shown is %t, want %t: %+v", what, got, visible, album)
		}
		want := contacts.Standing{Owner: owner, IsContact: r.called}
		if visible {
			want.Newest = &contacts.Photo{ID: uint64(owner), DateUpload: 100}
		}
		equal(t, what+": Standings", standings[i], nil, want)
	}
}

func testVisiblePhotos(t *testing.T, w world) {
	w.members(t, 1, 2, 3)
	w.calls(t, 1, 2, 3)
	must(t, w.site.SetContact(t.Context(), 2, 1, site.Grant{Friend: true}))
	w.photo(t, 11, 2, contacts.Public, 100)
	w.photo(t, 12, 2, contacts.Friends, 100) // a tie over two classes
	w.photo(t, 13, 2, contacts.FriendsFamily, 300)
	w.photo(t, 14, 2, contacts.Family, 400)
	w.photo(t, 15, 2, contacts.Private, 500)
	w.photo(t, 10, 2, contacts.Public, 200) // newer than its id says
	w.photo(t, 16, 3, contacts.Public, 600)
	dates := map[uint64]uint64{10: 200, 11: 100, 12: 100, 13: 300}
	var want []contacts.Photo
	for _, id := range []uint64{13, 10, 12, 11} {
		want = append(want, contacts.Photo{ID: id, Title: "a photo", DateUpload: dates[id]})
	}
	for limit := 1; limit <= 5; limit++ {
		got, err := contacts.Photos(t.Context(), w, viewer(1), 2, limit)
		equal(t, fmt.Sprintf("%d photos", limit), got, err, contacts.Album{
			Contact: &contacts.Profile{ID: 2, Username: "member 2"}, Photos: want[:min(limit, 4)],
		})
	}
}

// testLive: each change shows in the next answer.
func testLive(t *testing.T, w world) {
	w.members(t, 1, 2)
	w.calls(t, 1, 2)
	w.public(t, 11, 2, 100)
	w.public(t, 12, 2, 200)
	shown := func(step string, want ...uint64) {
		t.Helper()
		album, err := contacts.Photos(t.Context(), w, viewer(1), 2, 10)
		must(t, err)
		var got []uint64
		for _, p := range album.Photos {
			got = append(got, p.ID)
		}
		equal(t, step, got, nil, want)
	}
	ctx := t.Context()
	shown("at first", 12, 11)
	must(t, w.site.SetVisibility(ctx, 12, contacts.Private))
	shown("made private", 11)
	must(t, w.site.SetVisibility(ctx, 12, contacts.Friends))
	shown("for friends", 11)
	must(t, w.site.SetContact(ctx, 2, 1, site.Grant{Friend: true}))
	shown("now a friend", 12, 11)
	must(t, w.site.Block(ctx, 2, 1))
	must(t, w.site.Block(ctx, 2, 1))
	shown("blocked")
	must(t, w.site.Unblock(ctx, 2, 1))
	shown("unblocked", 12, 11)
	must(t, w.site.DeletePhoto(ctx, 11))
	shown("deleted", 12)
	must(t, w.site.RemoveContact(ctx, 1, 2))
	shown("no contact any more")
	must(t, w.site.SetContact(ctx, 1, 2, site.Grant{}))
	shown("contact again", 12)
	must(t, w.site.DeleteMember(ctx, 2))
	shown("no member any more")
}

func testStandings(t *testing.T, w world) {
	w.members(t, 1, 2, 3, 4, 5)
	w.calls(t, 1, 2, 3, 4)
	must(t, w.site.SetContact(t.Context(), 2, 1, site.Grant{Friend: true, Family: true}))
	var newest *contacts.Photo
	for i, v := range visibilities { // in each class two at one second
		date := uint64(100 + i)
		w.photo(t, uint64(20+2*i), 2, v, date)
		w.photo(t, uint64(21+2*i), 2, v, date)
		if v.ShownTo(contacts.Granted{Contact: true, Friend: true, Family: true, Follows: true}) {
			newest = &contacts.Photo{ID: uint64(21 + 2*i), DateUpload: date}
		}
	}
	w.photo(t, 50, 3, contacts.Private, 900)
	w.public(t, 60, 5, 900)
	want := map[member.ID]contacts.Standing{
		2: {Owner: 2, IsContact: true, Newest: newest},
		3: {Owner: 3, IsContact: true},
		4: {Owner: 4, IsContact: true},
		5: {Owner: 5},
		6: {Owner: 6},
		1: {Owner: 1},
	}
	for _, order := range [][]member.ID{{2, 3, 4, 5, 6, 1}, {6, 5, 4, 3, 2, 1}, {5}, {2, 2, 3, 2}} {
		var wanted []contacts.Standing
		for _, id := range order {
			wanted = append(wanted, want[id])
		}
		got, err := contacts.Standings(t.Context(), w, viewer(1), order)
		equal(t, fmt.Sprintf("Standings of %v", order), got, err, wanted)
	}
	got, err := contacts.Standings(t.Context(), w, viewer(1), nil)
	equal(t, "Standings of none", got, err, nil)
}

// testLargeIDs: the upper half of the range is not negative anywhere.
func testLargeIDs(t *testing.T, w world) {
	const low, high, top = member.ID(7), member.ID(1 << 63), member.ID(math.MaxUint64 - 1)
	w.members(t, low, high, top)
	w.calls(t, top, low, high)
	w.public(t, 1, low, 100)
	w.photo(t, math.MaxUint64-1, high, contacts.Public, 100)
	ctx, v := t.Context(), viewer(top)
	ranked := []contacts.Contact{{ID: high, LastUpload: 100}, {ID: low, LastUpload: 100}}

	last, err := w.LastUploads(ctx, []member.ID{low, high, top})
	equal(t, "LastUploads", last, err, map[member.ID]uint64{low: 100, high: 100, top: 0})
	related, err := w.Relations(ctx, []contacts.Pair{{User: top, Contact: high}, {User: high, Contact: top}})
	equal(t, "Relations", related, err, map[contacts.Pair]uint64{{User: top, Contact: high}: 100})
	tops, err := w.TopContacts(ctx, []member.ID{top}, 5)
	equal(t, "TopContacts", tops, err, map[member.ID][]contacts.Contact{top: ranked})
	standings, err := contacts.Standings(ctx, w, v, []member.ID{high})
	equal(t, "Standings", standings, err, []contacts.Standing{
		{Owner: high, IsContact: true, Newest: &contacts.Photo{ID: math.MaxUint64 - 1, DateUpload: 100}},
	})
	details, err := w.Details(ctx, v, []member.ID{high})
	equal(t, "Details", details, err, []contacts.Detail{
		{Standing: standings[0], IsMember: true, Username: "member " + high.String(), LastUpload: 100},
	})
	walked, err := w.walk(ctx, v, 5)
	equal(t, "Walk", walked, err, contacts.Walked{Indexable: true, Album: contacts.Album{
		Contact: &contacts.Profile{ID: high, Username: "member " + high.String()},
		Photos:  []contacts.Photo{{ID: math.MaxUint64 - 1, Title: "a photo", DateUpload: 100}},
	}})
}
