package contacts_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/contacts/contactstest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// The well-filled site of the tests of plans and costs.
const (
	bigViewer    = member.ID(1) // calls all others contacts
	bigOwner     = member.ID(2) // its newest photos are private
	bigMembers   = 12_000
	bigPrivate   = 50_000
	bigFollowing = 8 // contacts of everybody else
)

// fillBig makes the site, with fresh statistics.
func fillBig(t *testing.T, db *sql.DB) {
	t.Helper()
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	kinds := []contacts.Visibility{contacts.Private, contacts.Friends, contacts.Family, contacts.FriendsFamily, contacts.Public}
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
		for i, kind := range kinds {
			photos = append(photos, site.Photo{Owner: id, Visibility: kind, DateUpload: uint64(id) + uint64(i)})
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
	rows, err := db.QueryContext(t.Context(), "ANALYZE TABLE users, contacts, blocks, photos")
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
	db := openDB(t, contacts.WithMaxOpen(1))
	fillBig(t, db)
	t.Run("plans", func(t *testing.T) { testPlans(t, db) })
	t.Run("costs", func(t *testing.T) { testCosts(t, db) })
	t.Run("owner of many private photos", func(t *testing.T) { testManyPrivate(t, db) })
	hideBehindViews(t, db)
	t.Run("costs on views", func(t *testing.T) { testCosts(t, db) })
}

// plan is what a query is allowed to do: which key each table is read by, by
// alias, and whether a sort of stored rows may happen.
type plan struct {
	keys  map[string]string
	sorts []string // aliases at which the sort is noted
}

// plans of all statements. Tables that are no stored ones (a JSON list, a
// derived table, the result of a UNION) are not named.
var plans = map[string]plan{
	"LastUploads":       {keys: map[string]string{"u": "PRIMARY"}},
	"Existing":          {keys: map[string]string{"u": "PRIMARY"}},
	"Newest":            {keys: map[string]string{"u": "PRIMARY", "x": "newest"}},
	"Relations":         {keys: map[string]string{"c": "PRIMARY", "u": "PRIMARY"}},
	"ContactsByRecency": {keys: map[string]string{"c": "PRIMARY", "u": "PRIMARY"}, sorts: []string{"c"}},
	"TopContacts":       {keys: map[string]string{"v": "PRIMARY", "c": "PRIMARY", "u": "PRIMARY"}},
	"FollowerPages":     {keys: map[string]string{"contacts": "followers"}},
	"FollowerPages/any": {keys: map[string]string{"contacts": "followers"}},
	"VisiblePhotos": {keys: map[string]string{
		"c": "PRIMARY", "v": "PRIMARY", "o": "PRIMARY", "b": "PRIMARY", "g": "PRIMARY", "x": "newest",
	}},
	"Standings": {keys: map[string]string{
		"v": "PRIMARY", "c": "PRIMARY", "o": "PRIMARY", "g": "PRIMARY", "b": "PRIMARY", "x": "newest",
		"pub": "PRIMARY", "fri": "PRIMARY", "fam": "PRIMARY", "ff": "PRIMARY",
	}},
	"Details": {keys: map[string]string{
		"v": "PRIMARY", "c": "PRIMARY", "o": "PRIMARY", "g": "PRIMARY", "b": "PRIMARY", "x": "newest",
		"pub": "PRIMARY", "fri": "PRIMARY", "fam": "PRIMARY", "ff": "PRIMARY", "pri": "PRIMARY",
	}},
}

func testPlans(t *testing.T, db *sql.DB) {
	owners := []member.ID{bigOwner, 3, 4, 5000, 9999, 11_000, 4_000_000_000}
	statements := contacts.Statements(contacts.Viewer{ID: bigViewer}, bigOwner, owners)
	if len(statements) != len(plans) {
		t.Errorf("%d statements, but %d plans", len(statements), len(plans))
	}
	for name, st := range statements {
		t.Run(name, func(t *testing.T) { checkPlan(t, explain(t, db, st), plans[name]) })
	}
}

func checkPlan(t *testing.T, steps []step, allowed plan) {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range steps {
		if !s.stored() {
			continue
		}
		seen[s.table] = true
		if s.key != allowed.keys[s.table] || s.access == "ALL" || s.access == "index" {
			t.Errorf("table %s is read by %s over key %q, want %q: %+v", s.table, s.access, s.key, allowed.keys[s.table], s)
		}
		sorts := strings.Contains(s.extra, "filesort") || strings.Contains(s.extra, "temporary")
		if sorts && !s.constant() && !slices.Contains(allowed.sorts, s.table) {
			t.Errorf("table %s is sorted: %+v", s.table, s)
		}
	}
	for table := range allowed.keys {
		if !seen[table] {
			t.Errorf("table %s is missing in the plan %+v", table, steps)
		}
	}
}

// step is a row of EXPLAIN.
type step struct{ table, access, key, extra string }

// stored is false for what the query makes itself.
func (s step) stored() bool {
	return s.table != "" && s.table != "q" && !strings.HasPrefix(s.table, "<")
}

// constant: one row, read before the query begins; what is noted there about a
// sort concerns the derived table that comes after it.
func (s step) constant() bool { return s.access == "const" || s.access == "system" }

func explain(t *testing.T, db *sql.DB, st contacts.Statement) []step {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+st.Text, st.Args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		at := func(column string) string { return values[slices.Index(columns, column)].String }
		steps = append(steps, step{table: at("table"), access: at("type"), key: at("key"), extra: at("Extra")})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// testCosts counts the rows that each method reads. The viewer has 12,000
// contacts and the owner 50,000 private photos: a bound of some hundreds says
// that neither matters.
func testCosts(t *testing.T, db *sql.DB) {
	store := contacts.NewMySQL(db)
	v := contacts.Viewer{ID: bigViewer}
	twelve := []member.ID{bigOwner, 3, 4, 5, 6, 7, 8, 9, 5000, 9999, 11_000, 4_000_000_000}
	var many []contacts.Pair
	for i := range member.ID(300) {
		many = append(many, contacts.Pair{User: bigViewer, Contact: 2 + 7*i})
	}
	costs := []struct {
		name string
		most int
		ask  func(context.Context) error
	}{
		{"VisiblePhotos", 300, func(ctx context.Context) error {
			_, err := store.VisiblePhotos(ctx, v, bigOwner, 10)
			return err
		}},
		{"Standings", 30 * len(twelve), func(ctx context.Context) error {
			_, err := store.Standings(ctx, v, twelve)
			return err
		}},
		{"Details", 35 * len(twelve), func(ctx context.Context) error {
			_, err := store.Details(ctx, v, twelve)
			return err
		}},
		{"Relations", 6 * len(many), func(ctx context.Context) error {
			_, err := store.Relations(ctx, many)
			return err
		}},
		{"Newest", 20 * len(twelve), func(ctx context.Context) error {
			_, err := store.Newest(ctx, twelve)
			return err
		}},
		{"LastUploads", 100, func(ctx context.Context) error {
			_, err := store.LastUploads(ctx, twelve)
			return err
		}},
		{"Followers", 150, func(ctx context.Context) error {
			_, err := store.Followers(ctx, bigViewer, 5000, 100)
			return err
		}},
		// These two read all contacts of the member, and nothing beyond.
		{"ContactsByRecency", 3 * bigMembers, func(ctx context.Context) error {
			_, err := store.ContactsByRecency(ctx, bigViewer, twelve, contacts.Cursor{}, 12)
			return err
		}},
		{"TopContacts", 6 * 10 * (bigFollowing + 2), func(ctx context.Context) error {
			_, err := store.TopContacts(ctx, twelve[1:11], 12)
			return err
		}},
		{"Walk", 4 * bigMembers, func(ctx context.Context) error {
			_, err := store.Walk(ctx, v, 10)
			return err
		}},
		{"Ranking", 4 * bigMembers, func(ctx context.Context) error {
			_, err := store.Ranking(ctx, v, 10)
			return err
		}},
	}
	for _, c := range costs {
		before := rowsRead(t, db)
		if err := c.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		read := rowsRead(t, db) - before
		t.Logf("%s read %d rows", c.name, read)
		if read > c.most {
			t.Errorf("%s read %d rows, want at most %d", c.name, read, c.most)
		}
	}
}

// rowsRead is how many rows the storage engines were asked for in this session.
// Asking adds some dozens of its own.
func rowsRead(t *testing.T, db *sql.DB) int {
	t.Helper()
	return sessionStatus(t, db, "Handler_read%")
}

// sessionStatus adds up the counters whose names are like pattern, of the one
// connection that db has.
func sessionStatus(t *testing.T, db *sql.DB, pattern string) int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE ?", pattern)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	sum := 0
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

// testManyPrivate: what the bounded scans find is still right.
func testManyPrivate(t *testing.T, db *sql.DB) {
	var store contactstest.Store = contacts.NewMySQL(db)
	album, err := store.VisiblePhotos(t.Context(), contacts.Viewer{ID: bigViewer}, bigOwner, 10)
	if err != nil {
		t.Fatal(err)
	}
	dates := make([]string, 0, len(album.Photos))
	for _, p := range album.Photos {
		dates = append(dates, fmt.Sprint(p.DateUpload))
	}
	// The four visible ones were uploaded at id+1 to id+4.
	if got := strings.Join(dates, " "); got != "6 5 4 3" {
		t.Errorf("photos of %s, want those of 6 5 4 3", got)
	}
	standings, err := store.Standings(t.Context(), contacts.Viewer{ID: bigViewer}, []member.ID{bigOwner})
	if err != nil || len(standings) != 1 || standings[0].Newest == nil || standings[0].Newest.DateUpload != 6 {
		t.Errorf("Standings = %+v, %v, want a newest photo of 6", standings, err)
	}
}
