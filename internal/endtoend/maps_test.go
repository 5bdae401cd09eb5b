package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// foreign is the site of examples/site, with the map or the views that make the four names of its tables.
type foreign struct{ tables, description, views string }

// foreignRows are statements that add a row to the tables of each name. Each reads a row of values, r.
var foreignRows = map[string]string{
	"users":    "INSERT INTO site.members (id) SELECT id FROM r",
	"contacts": "INSERT IGNORE INTO site.friendships (asked_by, asked, state, is_family) SELECT user_id, other, 1, family FROM r",
	"blocks":   "INSERT INTO site.bans (owner, banned) SELECT user_id, other FROM r",
	"photos": "INSERT INTO site.pictures (id, owner, privacy, created_at)" +
		" SELECT id, owner, FIELD(visibility, 'friends', 'family', 'friends_family', 'public'), DATE_ADD('1970-01-01', INTERVAL at SECOND) FROM r",
}

// foreigns returns the example with its map, and with views whose columns are constants: the server merges a view into
// a statement, and may then take the constant for the column of a row that an outer join did not find.
func foreigns(t *testing.T) map[string]foreign {
	t.Helper()
	example := func(name string) string {
		text, err := os.ReadFile("../../examples/site/" + name)
		must(t, err)
		return string(text)
	}
	return map[string]foreign{
		"the example": {tables: example("tables.sql"), description: example("site.map")},
		"constants": {tables: example("tables.sql"), views: `
CREATE VIEW users AS SELECT id, 'anyone' AS username, 300 AS last_upload FROM site.members;
CREATE VIEW contacts AS SELECT COALESCE(asked_by, 0) AS user_id, asked + 0 AS contact_id, TRUE AS is_friend, 1 AS is_family FROM site.friendships;
CREATE VIEW blocks AS SELECT CAST(owner AS UNSIGNED) AS user_id, banned AS blocked_id FROM site.bans;
CREATE VIEW photos AS SELECT id, owner AS owner_id, 'a title' AS title, 'friends' AS visibility, UNIX_TIMESTAMP(created_at) AS date_upload FROM site.pictures`},
	}
}

// foreignSite is a site with all relations between an owner and a viewer.
type foreignSite struct {
	db       *sql.DB
	database string
	foreign
	members []member.ID
	truth   *contactstest.Memory

	granted map[contacts.Pair]contacts.Granted
	blocks  map[contacts.Pair]bool
	photos  []uint64
}

// named gives the databases in a text their names.
func (s *foreignSite) named(text string) string {
	text = strings.ReplaceAll(text, "site.", s.database+"_site.")
	return strings.ReplaceAll(text, "database = activityd", "database = "+s.database)
}

func (s *foreignSite) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), s.named(text), args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func newForeignSite(t *testing.T, f foreign) *foreignSite {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(1))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := &foreignSite{db: db, foreign: f, truth: contactstest.NewMemory(), granted: map[contacts.Pair]contacts.Granted{}, blocks: map[contacts.Pair]bool{}}
	must(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&s.database))
	s.describe(t)
	s.fill(t)
	s.read(t)
	return s
}

// describe puts views in the place of the tables.
func (s *foreignSite) describe(t *testing.T) {
	t.Helper()
	s.exec(t, "DROP TABLE users, contacts, blocks, photos")
	s.exec(t, "CREATE DATABASE "+s.database+"_site")
	t.Cleanup(func() { _, _ = s.db.ExecContext(context.Background(), "DROP DATABASE "+s.database+"_site") })
	for text := range strings.SplitSeq(s.tables+";"+s.views, ";") {
		if strings.TrimSpace(text) != "" {
			s.exec(t, text)
		}
	}
	if s.views != "" {
		return
	}
	m, err := mapping.Parse("site.map", s.named(s.description))
	must(t, err)
	for _, c := range m.Columns() {
		s.exec(t, c.Statement)
	}
	for _, i := range m.Indexes() {
		s.exec(t, i)
	}
	must(t, m.Apply(t.Context(), s.db))
	must(t, schema.Apply(t.Context(), s.db))
	must(t, m.Triggers().Install(t.Context(), s.db))
}

// fill adds an owner of each class, an owner of all classes, and a viewer for each relation to them.
func (s *foreignSite) fill(t *testing.T) {
	t.Helper()
	insert := func(name, row string, args ...any) {
		s.exec(t, strings.Replace(foreignRows[name], "FROM r", "FROM (SELECT "+row+") AS r", 1), args...)
	}
	classes := contacts.Classes()
	owners := len(classes) + 1
	for i := range owners {
		insert("users", "? AS id", i+1)
	}
	for i := range 1 << 6 {
		is := func(bit int) bool { return i>>bit&1 == 1 }
		v := 1000 + i
		insert("users", "? AS id", v)
		for owner := 1; owner <= owners; owner++ {
			if is(0) {
				insert("contacts", "? AS user_id, ? AS other, TRUE AS friend, FALSE AS family", v, owner)
			}
			if is(1) {
				insert("contacts", "? AS user_id, ? AS other, ? AS friend, ? AS family", owner, v, is(2), is(3))
			}
			if is(4) {
				insert("blocks", "? AS user_id, ? AS other", owner, v)
			}
			if is(5) {
				insert("blocks", "? AS user_id, ? AS other", v, owner)
			}
		}
	}
	for i, class := range classes {
		const photo = "? AS id, ? AS owner, ? AS visibility, ? AS at"
		insert("photos", photo, i+1, i+1, string(class), 100+i)
		insert("photos", photo, 50+i, owners, string(class), 200-i)
	}
}

// read reads the four names, by the plainest statements, into the specification.
func (s *foreignSite) read(t *testing.T) {
	t.Helper()
	each := func(text string, scan func(*sql.Rows) error) {
		_, err := mysql.Select(t.Context(), s.db, func(rows *sql.Rows) (struct{}, error) { return struct{}{}, scan(rows) }, text)
		must(t, err)
	}
	each("SELECT id, username, COALESCE(last_upload, 0) FROM users ORDER BY id", func(rows *sql.Rows) error {
		var id member.ID
		var name string
		var last uint64
		err := rows.Scan(&id, &name, &last)
		s.members = append(s.members, id)
		s.truth.AddMember(id, name)
		s.truth.SetLastUpload(id, last)
		return err
	})
	each("SELECT user_id, contact_id, is_friend, is_family FROM contacts", func(rows *sql.Rows) error {
		p, g := contacts.Pair{}, contacts.Granted{Contact: true}
		err := rows.Scan(&p.User, &p.Contact, &g.Friend, &g.Family)
		s.granted[p] = g
		s.truth.SetContact(p.User, p.Contact, g.Friend, g.Family)
		return err
	})
	each("SELECT user_id, blocked_id FROM blocks", func(rows *sql.Rows) error {
		var p contacts.Pair
		err := rows.Scan(&p.User, &p.Contact)
		s.blocks[p] = true
		s.truth.Block(p.User, p.Contact)
		return err
	})
	each("SELECT id, owner_id, title, visibility, date_upload FROM photos ORDER BY id", func(rows *sql.Rows) error {
		var id, date uint64
		var owner member.ID
		var title string
		var v contacts.Visibility
		err := rows.Scan(&id, &owner, &title, &v, &date)
		s.photos = append(s.photos, id)
		s.truth.AddPhoto(id, owner, title, v, date)
		return err
	})
	if len(s.members) < 60 || len(s.photos) < 8 {
		t.Fatalf("there are %d members and %d photos", len(s.members), len(s.photos))
	}
}

// TestStatementsOnForeignSchemas: every statement of reads and push says what the specification says, however
// often the connection has executed it.
func TestStatementsOnForeignSchemas(t *testing.T) {
	t.Parallel()
	for name, f := range foreigns(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newForeignSite(t, f)
			look := s.pushed(t)
			for range 3 { // on one connection, which has prepared them
				s.checkReads(t)
				look()
			}
		})
	}
}

// checkReads compares the answers to members.
func (s *foreignSite) checkReads(t *testing.T) {
	t.Helper()
	ctx, store := t.Context(), contacts.NewMySQL(s.db)
	for _, id := range s.members {
		v := contacts.Viewer{ID: id}
		same(t, fmt.Sprint("the details of ", id), func(r reads) (any, error) { return r.Details(ctx, v, s.members[:10]) }, s.truth, store)
		same(t, fmt.Sprint("the walk of ", id), func(r reads) (any, error) {
			walked, err := r.Walk(ctx, v, 10)
			walked.Trace = contacts.WalkTrace{}
			return walked, err
		}, s.truth, store)
		same(t, fmt.Sprint("the comparison of ", id), func(r reads) (any, error) { return r.Compare(ctx, v, s.members, 1) }, s.truth, store)
		for _, owner := range s.members[:7] {
			same(t, fmt.Sprintf("the look of %d at %d", id, owner), func(r reads) (any, error) { return r.Look(ctx, v, owner, 10, 1) }, s.truth, store)
		}
	}
	same(t, "the newest photos", func(r reads) (any, error) { return r.Newest(ctx, s.members) }, s.truth, store)
	same(t, "the contacts", func(r reads) (any, error) { return r.TopContacts(ctx, s.members, 10) }, s.truth, store)
}

// reads are the statements of reads.
type reads interface {
	storyStore
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
}

// same asks the specification and the statements.
func same(t *testing.T, what string, ask func(reads) (any, error), want, got reads) {
	t.Helper()
	wanted, err := ask(want)
	must(t, err)
	answer, err := ask(got)
	must(t, err)
	if diff := cmp.Diff(wanted, answer, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-specification +SQL):\n%s", what, diff)
	}
}

// pushed stores an event about each photo and a device of each member, and returns a function that compares
// the looks of push.
func (s *foreignSite) pushed(t *testing.T) (look func()) {
	t.Helper()
	store := push.NewMySQL(s.db)
	var batch []*push.StoredEvent
	var owners []member.ID
	for i, photo := range s.photos {
		owner, _, _, _ := s.truth.OwnerOf(photo)
		owners = append(owners, owner)
		batch = append(batch, push.NewStored(push.Event{
			ID: fmt.Sprint("e", photo), Type: "upload", Actor: owner, Object: fmt.Sprint("photo:", photo), Followers: true,
		}, uint64(i+1), time.Now()))
	}
	events, err := store.StoreEvents(t.Context(), batch)
	must(t, err)
	var candidates []push.Candidate
	for _, id := range s.members {
		s.exec(t, "INSERT INTO push_devices (member_id, platform, address_hash, registered_at) VALUES (?, 'fcm', UNHEX(SHA2(?, 256)), 1)", uint64(id), uint64(id))
		for _, e := range events {
			candidates = append(candidates, push.Candidate{Event: e, Member: id})
		}
	}
	return func() {
		facts, err := store.Look(t.Context(), candidates)
		must(t, err)
		if len(facts) != len(candidates) {
			t.Fatalf("%d facts, want %d", len(facts), len(candidates))
		}
		for i, f := range facts {
			v, n := candidates[i].Member, i%len(events)
			_, class, _, _ := s.truth.OwnerOf(s.photos[n])
			blocked := s.blocks[contacts.Pair{User: owners[n], Contact: v}] || s.blocks[contacts.Pair{User: v, Contact: owners[n]}]
			granted := s.granted[contacts.Pair{User: owners[n], Contact: v}]
			_, granted.Follows = s.granted[contacts.Pair{User: v, Contact: owners[n]}]
			visible := owners[n] == v || !blocked && class.ShownTo(granted)
			if f.Visible != visible || f.Blocked != blocked || f.Departed {
				t.Errorf("a %s photo of %d for %d: %+v, want visible %t, blocked %t", class, owners[n], v, f, visible, blocked)
			}
		}
	}
}
