package contacts_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/site"
)

// seen is a photo and a member that may see it.
type seen struct {
	Viewer member.ID
	Photo  uint64
}

func bySeen(a, b seen) int {
	return slices.Compare([]uint64{uint64(a.Viewer), a.Photo}, []uint64{uint64(b.Viewer), b.Photo})
}

// testSight goes through every class × grant × block × direction, as testPrivacy does. That
// the viewer calls the owner a contact matters for followers alone.
func testSight(t *testing.T) {
	db := openDB(t)
	w := world{Store: contacts.NewMySQL(db), site: site.NewMySQL(db)}
	owners := ownersOfEachClass(t, w)
	var want []seen
	for i, r := range allRelations() {
		v := viewer(member.ID(1000 + i))
		w.relate(t, v, owners, r)
		for i, owner := range owners {
			if !r.blocked && !r.blocks && visibilities[i].ShownTo(r.granted()) {
				want = append(want, seen{v.ID, uint64(owner)})
			}
		}
	}
	got, err := mysql.Select(t.Context(), db, func(rows *sql.Rows) (s seen, err error) {
		return s, rows.Scan(&s.Viewer, &s.Photo)
	}, "SELECT v.id, q.id FROM users v STRAIGHT_JOIN photos q"+contacts.SightJoins("q.id")+" WHERE v.id >= 1000 AND "+contacts.Sight)
	slices.SortFunc(got, bySeen)
	equal(t, "Sight", got, err, want)
}

// compareSight compares the answers of Sight about all members and photos, and about some photos that
// do not exist, with the specification: the photos that VisiblePhotos would return if each member
// called everybody a contact, without photos for followers where it does not, and the member's own photos.
func compareSight(t *rapid.T, ctx context.Context, db *sql.DB, memory *contactstest.Memory) {
	owners := make(map[uint64]member.ID)
	_, err := mysql.Select(ctx, db, func(rows *sql.Rows) (_ struct{}, err error) {
		var photo uint64
		var owner member.ID
		err = rows.Scan(&photo, &owner)
		owners[photo] = owner
		return struct{}{}, err
	}, "SELECT id, owner_id FROM photos")
	if err != nil {
		t.Fatal(err)
	}
	var question [][2]uint64
	for _, v := range people {
		for _, photo := range append(slices.Collect(maps.Keys(owners)), 0, 1000) {
			question = append(question, [2]uint64{uint64(v), photo})
		}
	}
	text, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	got, err := mysql.Select(ctx, db, func(rows *sql.Rows) (s seen, err error) {
		var may bool
		if err = rows.Scan(&s.Viewer, &s.Photo, &may); !may {
			s = seen{}
		}
		return s, err
	}, "SELECT q.v, q.p, "+contacts.Sight+
		" FROM JSON_TABLE(?, '$[*]' COLUMNS (v BIGINT UNSIGNED PATH '$[0]', p BIGINT UNSIGNED PATH '$[1]')) AS q"+
		" STRAIGHT_JOIN users v ON v.id = q.v"+contacts.SightJoins("q.p"), string(text))
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(got, func(s seen) bool { return s == seen{} })
	slices.SortFunc(got, bySeen)
	if diff := cmp.Diff(sightOf(t, ctx, memory, owners), got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Sight (-specification +SQL):\n%s", diff)
	}
}

// sightOf is the specification.
func sightOf(t *rapid.T, ctx context.Context, memory *contactstest.Memory, owners map[uint64]member.ID) (want []seen) {
	members, err := memory.LastUploads(ctx, people)
	if err != nil {
		t.Fatal(err)
	}
	isMember := func(id member.ID) bool {
		_, is := members[id]
		return is
	}
	for photo, owner := range owners {
		if isMember(owner) {
			want = append(want, seen{owner, photo})
		}
	}
	called, err := memory.Relations(ctx, allPairs())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range allPairs() {
		if p.User == p.Contact || !isMember(p.User) || !isMember(p.Contact) {
			continue
		}
		_, isContact := called[p]
		if !isContact {
			memory.SetContact(p.User, p.Contact, false, false)
		}
		album, err := contacts.Photos(ctx, memory, contacts.Viewer{ID: p.User}, p.Contact, 1000)
		if !isContact { // that row could let others see more
			memory.RemoveContact(p.User, p.Contact)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, photo := range album.Photos {
			if _, class, _, _ := memory.OwnerOf(photo.ID); isContact || class != contacts.Followers {
				want = append(want, seen{p.User, photo.ID})
			}
		}
	}
	slices.SortFunc(want, bySeen)
	return want
}
