package site_test

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// plainSite returns a site twice, by its tables with the key on last_upload and by the
// definition.
func plainSite(t *testing.T) (*sql.DB, *contactstest.Memory, []site.Site) {
	t.Helper()
	db, store := servertest.MySQL(t), contactstest.NewMemory()
	if err := site.AddLastUploadKey(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db, store, []site.Site{site.NewMySQL(db), &site.Memory{Store: store}}
}

// requireDefinition fails unless each plain way gives each viewer the photos of the definition. It returns
// the number of photos.
func requireDefinition(t *testing.T, db *sql.DB, store *contactstest.Memory, viewers ...member.ID) (shown int) {
	t.Helper()
	for _, id := range viewers {
		v := contacts.Viewer{ID: id}
		want, err := store.Walk(t.Context(), v, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range site.PlainSQL(db) {
			got, err := way.Ask(t.Context(), v, 7)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Album, got); diff != "" {
				t.Errorf("viewer %d, %s: the answer differs from the definition (-want +got):\n%s", id, way.Name, diff)
			}
		}
		shown += len(want.Photos)
	}
	return shown
}

// Many photos of a second, of every visibility, blocks, and last uploads of photos hidden from the viewer:
// within a second the id decides.
func TestPlainSQLGivesTheAnswerByDefinition(t *testing.T) {
	t.Parallel()
	const circles, members = 60, 7
	db, store, sites := plainSite(t)
	dice := rand.New(rand.NewPCG(1, 1))
	var viewers []member.ID
	var photo uint64
	for c := range circles {
		anyone := func() member.ID { return member.ID(10*c + 1 + dice.IntN(members)) }
		var people []site.Member
		var relations []site.Relation
		var photos []site.Photo
		for i := range members {
			id := member.ID(10*c + 1 + i)
			people, viewers = append(people, site.Member{ID: id, Username: id.String()}), append(viewers, id)
		}
		for range 25 {
			relations = append(relations, site.Relation{User: anyone(), Contact: anyone(), Grant: site.Grant{Friend: dice.IntN(2) == 0, Family: dice.IntN(2) == 0}})
		}
		for range 30 {
			photo++
			all := contacts.Classes()
			photos = append(photos, site.Photo{ID: photo, Owner: anyone(), Visibility: all[dice.IntN(len(all))], DateUpload: uint64(1 + dice.IntN(4))})
		}
		user, blocked, gone := anyone(), anyone(), photo-uint64(dice.IntN(5))
		for _, s := range sites {
			if err := errors.Join(
				s.LoadMembers(t.Context(), people), s.LoadContacts(t.Context(), relations), s.LoadPhotos(t.Context(), photos),
				s.Block(t.Context(), user, blocked), s.DeletePhoto(t.Context(), gone),
			); err != nil {
				t.Fatal(err)
			}
		}
	}
	if requireDefinition(t, db, store, viewers...) == 0 {
		t.Error("no member sees anything")
	}
}

// Each statement reads by the indexes that it is for, and no more than it must.
func TestPlainSQLReadsByItsIndexes(t *testing.T) {
	t.Parallel()
	db, _, sites := plainSite(t)
	db.SetMaxOpenConns(1) // whose session counts
	if err := smallWorld().Load(t.Context(), sites[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		viewer     member.ID
		keys       []string // by table
		most       int      // rows and index entries
	}{
		{"members first, 400 contacts", site.MembersFirst, 1, []string{"u last_upload", "c PRIMARY", "g PRIMARY", "b PRIMARY", "k PRIMARY", "x newest", "o PRIMARY", "p newest"}, 250},
		{"contacts first, 12 contacts", site.ContactsFirst, 4, []string{"u PRIMARY", "c PRIMARY", "g PRIMARY", "b PRIMARY", "k PRIMARY", "x newest", "o PRIMARY", "p newest"}, 250},
	} {
		ask := func() {
			if _, err := site.AskPlainly(t.Context(), db, c.text, contacts.Viewer{ID: c.viewer}, 10); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for _, statement := range servertest.Statements(t, db, ask) {
			for _, step := range servertest.Explain(t, db, statement) {
				// The range between two dates is known when the first is: EXPLAIN names no key then.
				bounded := step.Table == "u" && strings.HasPrefix(step.Extra, "Range checked for each record")
				if key := step.Table + " " + step.Key; step.Stored() && !bounded {
					seen[key] = true
					// To read an index from one end until the LIMIT is no scan.
					if !slices.Contains(c.keys, key) || step.Access == "ALL" {
						t.Errorf("%s: %+v, want keys %v", c.name, step, c.keys)
					}
				}
			}
		}
		for _, key := range c.keys {
			if !seen[key] {
				t.Errorf("%s: nothing is read by %s", c.name, key)
			}
		}
		const rows = "Handler_read%"
		before := servertest.SessionStatus(t, db, rows)
		ask()
		read := servertest.SessionStatus(t, db, rows) - before
		t.Logf("%s: %d rows and index entries", c.name, read)
		if read > c.most {
			t.Errorf("%s read %d rows and index entries, want at most %d", c.name, read, c.most)
		}
	}
}

// smallWorld is that of the demo with 410 members, of whom the first has 400 contacts.
func smallWorld() *world.World {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks = 410, 2400, 20
	spec.Quiet = 0
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec.Generate(time.Now())
}
