package contacts_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// The well-filled site of the tests of plans and costs.
const (
	bigViewer    = member.ID(1) // calls everybody a contact
	bigOwner     = member.ID(2) // its newest photos are private
	bigMembers   = 12_000
	bigPrivate   = 50_000
	bigFollowing = 8 // contacts of each member besides
	bigBusy      = member.ID(3)
	bigPhotos    = 1000 // in each class, of bigBusy and the next six members
	// The broadcast members begin with 5001; half of them uploaded from bigBroadcastDate on.
	bigBroadcasts    = contacts.MaxBroadcasts
	bigBroadcastDate = 100_000
)

// fillBig makes the site, with fresh statistics.
func fillBig(t *testing.T, db *sql.DB) {
	t.Helper()
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for id := member.ID(1); id <= bigMembers; id++ {
		members = append(members, site.Member{ID: id, Username: "u" + id.String()})
		if id != bigViewer {
			relations = append(relations, site.Relation{User: bigViewer, Contact: id})
		}
		for i := range member.ID(bigFollowing) {
			relations = append(relations, site.Relation{
				User: id, Contact: (id*(i+3)+i)%bigMembers + 1, Grant: site.Grant{Friend: i%2 == 0},
			})
		}
		relations = append(relations, site.Relation{User: id, Contact: bigViewer, Grant: site.Grant{Friend: true, Family: id%2 == 0}})
		for i, kind := range contacts.Classes() {
			photos = append(photos, site.Photo{Owner: id, Visibility: kind, DateUpload: uint64(id) + uint64(i)})
			for n := range uint64(bigPhotos) {
				if id >= bigBusy && id < bigBusy+7 {
					photos = append(photos, site.Photo{Owner: id, Visibility: kind, DateUpload: 20_000 + n})
				}
			}
		}
	}
	for i := range uint64(bigPrivate) {
		photos = append(photos, site.Photo{Owner: bigOwner, Visibility: contacts.Private, DateUpload: 1_000_000 + i})
	}
	s := site.NewMySQL(db)
	for _, err := range []error{
		s.LoadMembers(t.Context(), members), s.LoadContacts(t.Context(), relations), s.LoadPhotos(t.Context(), photos),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO broadcast_members (member_id, last_upload) SELECT id, ? + CAST(id AS SIGNED) FROM users WHERE id BETWEEN 5001 AND 5000 + ?",
		bigBroadcastDate-5001-bigBroadcasts/2, bigBroadcasts); err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(t.Context(), "ANALYZE TABLE users, contacts, blocks, photos, broadcast_members")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() { // the statement is done when its rows are read
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestPlansAndCosts is about a site large enough for the optimizer to care.
func TestPlansAndCosts(t *testing.T) {
	t.Parallel()
	// One connection, so that its session's counters see every statement.
	db := openDB(t, mysql.WithMaxOpen(1))
	fillBig(t, db)
	t.Run("plans", func(t *testing.T) { testPlans(t, db) })
	t.Run("costs", func(t *testing.T) { testCosts(t, db) })
	t.Run("owner of many private photos", func(t *testing.T) { testManyPrivate(t, db) })
	for _, collation := range []string{"utf8mb4_unicode_ci", "latin1_swedish_ci"} {
		charset, _, _ := strings.Cut(collation, "_")
		_, err := db.ExecContext(t.Context(), "ALTER TABLE photos MODIFY visibility"+
			" "+visibilityEnum()+" CHARACTER SET "+charset+" COLLATE "+collation+" NOT NULL")
		if err != nil {
			t.Fatal(err)
		}
		t.Run("plans with "+collation, func(t *testing.T) { testPlans(t, db) })
	}
	hideBehindViews(t, db)
	t.Run("costs on views", func(t *testing.T) { testCosts(t, db) })
}

// question is a call of the store, with the keys and rows that its statements may read.
type question struct {
	name string
	keys map[string]string // by which key each stored table is read, by alias
	most int               // rows and index entries that are read
	ask  func(context.Context) error
}

// The keys of the questions that are parts of further questions.
var (
	photoKeys = map[string]string{
		"c": "PRIMARY", "v": "PRIMARY", "o": "PRIMARY", "b": "PRIMARY", "k": "PRIMARY", "g": "PRIMARY", "x": "newest",
	}
	ofShown, ofOthers = contacts.Aliases()
	standingKeys      = with(photoKeys, byPrimary(ofShown...))
	detailKeys        = with(standingKeys, byPrimary(ofOthers...))
	recencyKeys       = byPrimary("c", "u")
	walkKeys          = with(with(standingKeys, byPrimary("u")), map[string]string{"m": "newest"})
)

func with(keys, more map[string]string) map[string]string {
	all := maps.Clone(keys)
	maps.Copy(all, more)
	return all
}

func byPrimary(aliases ...string) map[string]string {
	keys := make(map[string]string, len(aliases))
	for _, alias := range aliases {
		keys[alias] = "PRIMARY"
	}
	return keys
}

// questions are all that the store answers. The viewer has 12,000 contacts and the
// owner 50,000 private photos, some of the twelve have thousands in each class: a
// bound of some hundreds says that none of it matters.
func questions(store *contacts.MySQL) []question {
	v := contacts.Viewer{ID: bigViewer}
	shown, all := len(ofShown), len(ofShown)+len(ofOthers)
	twelve := []member.ID{bigOwner, 3, 4, 5, 6, 7, 8, 9, 5000, 9999, 11_000, 4_000_000_000}
	var many []contacts.Pair
	for i := range member.ID(300) {
		many = append(many, contacts.Pair{User: bigViewer, Contact: 2 + 7*i})
	}
	return []question{
		{"Look of a viewer who follows no broadcast member", with(byPrimary("c", "v", "o", "b", "k"), map[string]string{"x": "newest", "m": "newest"}), 75*shown + 2*bigBroadcasts, func(ctx context.Context) error {
			l, err := store.Look(ctx, contacts.Viewer{ID: 12_000}, bigViewer, 10, bigBroadcastDate)
			if err == nil && len(l.Above) > 0 {
				err = fmt.Errorf("the broadcast members are %v", l.Above)
			}
			return err
		}},
		{"Look", with(photoKeys, map[string]string{"m": "newest"}), 75*shown + 20, func(ctx context.Context) error {
			l, err := store.Look(ctx, v, bigBusy, 10, bigBroadcastDate)
			if err == nil && (len(l.Above) != 2 || l.Below != bigBroadcastDate-1) {
				err = fmt.Errorf("the broadcast members are %v, %d", l.Above, l.Below)
			}
			return err
		}},
		{"Look above all", with(photoKeys, map[string]string{"m": "newest"}), 75*shown + 10, func(ctx context.Context) error {
			_, err := store.Look(ctx, v, bigBusy, 10, 1<<40)
			return err
		}},
		{"Compare", with(standingKeys, map[string]string{"m": "newest"}), (6+6*shown)*(len(twelve)+33) + 400, func(ctx context.Context) error {
			_, err := store.Compare(ctx, v, twelve, bigBroadcastDate)
			return err
		}},
		{"Details", detailKeys, 7 * all * len(twelve), func(ctx context.Context) error {
			_, err := store.Details(ctx, v, twelve)
			return err
		}},
		{"Sightings", byPrimary("v", "x", "o", "g", "f", "h", "k"), 10 * 20, func(ctx context.Context) error {
			_, err := store.Sightings(ctx, v, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 4_000_000_000})
			return err
		}},
		{"Newest", map[string]string{"o": "PRIMARY", "x": "newest"}, 4 * all * len(twelve), func(ctx context.Context) error {
			_, err := store.Newest(ctx, twelve)
			return err
		}},
		{"Relations", recencyKeys, 6 * len(many), func(ctx context.Context) error {
			_, err := store.Relations(ctx, many)
			return err
		}},
		{"LastUploads", map[string]string{"u": "PRIMARY"}, 100, func(ctx context.Context) error {
			_, err := store.LastUploads(ctx, twelve)
			return err
		}},
		{"Broadcasts", map[string]string{"b": "PRIMARY"}, 100, func(ctx context.Context) error {
			_, err := store.Broadcasts(ctx, twelve)
			return err
		}},
		{"Members", map[string]string{"users": "PRIMARY"}, 200, func(ctx context.Context) error {
			_, err := store.Members(ctx, 5000, 100)
			return err
		}},
		{"CountMembers", map[string]string{"users": "PRIMARY"}, 200, func(ctx context.Context) error {
			_, err := store.CountMembers(ctx, 5000, 5100)
			return err
		}},
		{"NthMember", map[string]string{"users": "PRIMARY"}, 200, func(ctx context.Context) error {
			_, err := store.NthMember(ctx, 5000, 100)
			return err
		}},
		{"FollowerPages", map[string]string{"contacts": "followers"}, 400, func(ctx context.Context) error {
			_, err := store.FollowerPages(ctx, []contacts.FollowerPage{{Of: bigViewer, After: 5000}, {Of: bigOwner}}, 100)
			return err
		}},
		{"HasFollowers", map[string]string{"contacts": "followers"}, 120, func(ctx context.Context) error {
			_, err := store.HasFollowers(ctx, bigOwner, 100)
			return err
		}},
		// TopContacts and Walk read all contacts of the member, and nothing beyond.
		{"TopContacts", with(recencyKeys, byPrimary("v")), 6 * 10 * (bigFollowing + 2), func(ctx context.Context) error {
			_, err := store.TopContacts(ctx, twelve[1:11], 12)
			return err
		}},
		{"Walk", walkKeys, 4 * bigMembers, func(ctx context.Context) error {
			_, err := store.Walk(ctx, v, 10)
			return err
		}},
	}
}

// testPlans reads the plan of every statement that was sent, as it was sent.
func testPlans(t *testing.T, db *sql.DB) {
	for _, q := range questions(contacts.NewMySQL(db)) {
		t.Run(q.name, func(t *testing.T) {
			statements := servertest.Statements(t, db, func() {
				if err := q.ask(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
			seen := map[string]bool{}
			for _, statement := range statements {
				for _, s := range servertest.Explain(t, db, statement) {
					if !s.Stored() {
						continue
					}
					seen[s.Table] = true
					// eq_ref is a lookup of at most one row: MariaDB from 11 on may prefer
					// another key that has all columns of the primary one.
					lookup := s.Access == "eq_ref" && q.keys[s.Table] == "PRIMARY"
					if s.Key != q.keys[s.Table] && !lookup || s.Scans() {
						t.Errorf("%+v\nwant key %q, in\n%s", s, q.keys[s.Table], statement)
					}
					if s.Sorts() {
						t.Errorf("%+v\nis sorted, in\n%s", s, statement)
					}
				}
			}
			for table := range q.keys {
				if !seen[table] {
					t.Errorf("no step reads table %s, of\n%s", table, strings.Join(statements, "\n"))
				}
			}
		})
	}
}

// testCosts counts the rows that each question reads.
func testCosts(t *testing.T, db *sql.DB) {
	const rows = "Handler_read%"
	for _, q := range questions(contacts.NewMySQL(db)) {
		before := servertest.SessionStatus(t, db, rows)
		if err := q.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		read := servertest.SessionStatus(t, db, rows) - before
		t.Logf("%s read %d rows", q.name, read)
		if read > q.most {
			t.Errorf("%s read %d rows, want at most %d", q.name, read, q.most)
		}
	}
}

// testManyPrivate: the bounded scans find the right photos.
func testManyPrivate(t *testing.T, db *sql.DB) {
	var store Store = contacts.NewMySQL(db)
	album, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: bigViewer}, bigOwner, 10)
	if err != nil {
		t.Fatal(err)
	}
	dates := make([]string, 0, len(album.Photos))
	for _, p := range album.Photos {
		dates = append(dates, fmt.Sprint(p.DateUpload))
	}
	var want []string // as fillBig has it
	for i, v := range contacts.Classes() {
		if v.ShownTo(contacts.Granted{Contact: true, Friend: true, Family: true, Follows: true}) {
			want = append([]string{fmt.Sprint(uint64(bigOwner) + uint64(i))}, want...)
		}
	}
	if diff := cmp.Diff(want, dates); diff != "" {
		t.Errorf("the dates of the photos (-want +got):\n%s", diff)
	}
	standings, err := contacts.Standings(t.Context(), store, contacts.Viewer{ID: bigViewer}, []member.ID{bigOwner})
	if err != nil || len(standings) != 1 || standings[0].Newest == nil || fmt.Sprint(standings[0].Newest.DateUpload) != want[0] {
		t.Errorf("Standings = %+v, %v, want a newest photo of %s", standings, err, want[0])
	}
}
