package contacts_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// snapshotOf returns a snapshot of now.
func snapshotOf(t *testing.T, db *sql.DB) contacts.Snapshot {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return contacts.NewSnapshot(tx)
}

// testSightings goes through every class × grant × block × direction: a photo that is said to be shown is shown by
// the read, and each reason is the reason that was made.
func testSightings(t *testing.T) {
	db := openDB(t)
	w := world{Store: contacts.NewMySQL(db), site: site.NewMySQL(db)}
	owners := ownersOfEachClass(t, w)
	photos := make([]uint64, len(owners))
	for i, owner := range owners {
		photos[i] = uint64(owner)
	}
	gone := photos[len(photos)-1] + 1
	for i, r := range allRelations() {
		v := viewer(member.ID(1000 + i))
		w.relate(t, v, owners, r)
		var want []contacts.Sighting
		for i, owner := range owners {
			album, err := contacts.Photos(t.Context(), w, v, owner, 1)
			must(t, err)
			seen := contacts.Sighting{
				Photo: photos[i], Owner: owner, DateUpload: 100, LastUpload: r.detail(owner, visibilities[i]).LastUpload, Doubt: "condition",
			}
			switch {
			case r.blocked || r.blocks:
				seen.Hidden = "block"
			case !r.called:
				seen.Hidden = "relation"
			case len(album.Photos) == 0:
				seen.Hidden = "visibility"
			}
			switch {
			case visibilities[i] != contacts.Public:
				seen.Doubt = "visibility"
			case !r.granting:
				seen.Doubt = "relation"
			}
			want = append(want, seen)
		}
		want = append(want, contacts.Sighting{Photo: gone, Hidden: "deleted", Doubt: "relation"})
		got, err := w.Store.(*contacts.MySQL).Sightings(t.Context(), v, slices.Concat(photos, []uint64{gone}))
		equal(t, fmt.Sprintf("Sightings under %+v", r), got, err, want)
	}
}

// All answers of a snapshot are of one instant, whatever is committed in between.
func TestASnapshotIsOfOneInstant(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	w := world{Store: contacts.NewMySQL(db), site: site.NewMySQL(db)}
	w.members(t, 1, 2)
	w.calls(t, 1, 2)
	w.public(t, 20, 2, 100)
	s := snapshotOf(t, db)
	before, err := s.Walk(t.Context(), viewer(1), 10)
	must(t, err)
	must(t, w.site.Block(t.Context(), 2, 1))
	w.public(t, 21, 2, 200)
	after, err := s.Walk(t.Context(), viewer(1), 10)
	equal(t, "Walk", after, err, before)
	seen, err := s.Sightings(t.Context(), viewer(1), []uint64{20, 21})
	if err != nil || seen[0].Hidden != "" || seen[1].Owner != 0 {
		t.Errorf("Sightings: %+v, %v", seen, err)
	}
	if _, err := s.Sightings(t.Context(), viewer(3), []uint64{20}); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("Sightings for no member: %v", err)
	}
}
