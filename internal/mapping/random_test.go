package mapping_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// ground is a database with a site of some kind beside it.
type ground struct {
	aSite

	db       *sql.DB
	database string // of the views; that of the site has _site behind it
	mapping  *mapping.Map
}

// named gives the databases in a text their names.
func (g *ground) named(text string) string {
	text = strings.ReplaceAll(text, "site.", g.database+"_site.")
	return strings.ReplaceAll(text, "database = activityd", "database = "+g.database)
}

// newGround makes the tables of a site.
func newGround(t *testing.T, s aSite) *ground {
	t.Helper()
	return newGroundOn(t, s, servertest.MySQLDSN(t))
}

func newGroundOn(t *testing.T, s aSite, dsn string) *ground {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	g := &ground{aSite: s, db: db}
	g.database = column(t, db, "SELECT DATABASE()")[0]
	run(t, db, "CREATE DATABASE "+g.database+"_site", "DROP TABLE users, contacts, blocks, photos")
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP DATABASE "+g.database+"_site") })
	for statement := range strings.SplitSeq(g.named(s.tables), ";") {
		if strings.TrimSpace(statement) != "" {
			run(t, db, statement)
		}
	}
	g.mapping, err = mapping.Parse("site.map", g.named(s.description))
	must(t, err)
	return g
}

// adopt does the same as the printed statements and --apply.
func (g *ground) adopt(t *testing.T) {
	t.Helper()
	for _, c := range g.mapping.Columns() {
		run(t, g.db, c.Statement)
	}
	run(t, g.db, g.mapping.Indexes()...)
	must(t, g.mapping.Apply(t.Context(), g.db))
	must(t, schema.Apply(t.Context(), g.db))
	must(t, g.mapping.Triggers().Install(t.Context(), g.db))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func column(t testing.TB, db *sql.DB, query string) (values []string) {
	t.Helper()
	for _, r := range rowsOf(t, db, query) {
		for _, v := range r {
			values = append(values, v)
		}
	}
	return values
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func rowsOf(t fataler, db *sql.DB, query string) []row {
	list, err := mysql.Select(context.Background(), db, func(rows *sql.Rows) (row, error) { return mysql.ByName(rows) }, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}

// state is the meaning of a site, and activityd's column.
type state struct {
	world

	rows        []int64         // members whose row there is, whether they exist or not
	lastUploads map[int64]int64 // by the row, whether it exists or not
}

func (g *ground) state(t fataler) state {
	rows := make(map[string][]row)
	for name := range g.values {
		columns := "*"
		if name == g.users {
			columns = "t.*, " + g.lastUpload + " AS the_last_upload"
		}
		rows[name] = rowsOf(t, g.db, "SELECT "+columns+" FROM "+g.database+"_site.`"+name+"` AS t")
	}
	s := state{world: newWorld(), lastUploads: make(map[int64]int64)}
	g.means(rows, s.world)
	for _, r := range rows[g.users] {
		s.rows = append(s.rows, r.number(g.id))
		if !r.null("the_last_upload") {
			s.lastUploads[r.number(g.id)] = r.number("the_last_upload")
		}
	}
	return s
}

// views are the views that activityd reads.
func (g *ground) views(t fataler) (world, map[int64]int64) {
	w, last := newWorld(), make(map[int64]int64)
	for _, r := range rowsOf(t, g.db, "SELECT id, username, last_upload FROM users") {
		w.members[r.number("id")] = r["username"]
		if !r.null("last_upload") {
			last[r.number("id")] = r.number("last_upload")
		}
	}
	for _, r := range rowsOf(t, g.db, "SELECT user_id, contact_id, is_friend, is_family FROM contacts") {
		p := pair{r.number("user_id"), r.number("contact_id")}
		if _, twice := w.contacts[p]; twice {
			t.Fatalf("the contact %v is there twice", p)
		}
		w.contacts[p] = grant{r.yes("is_friend"), r.yes("is_family")}
	}
	for _, r := range rowsOf(t, g.db, "SELECT user_id, blocked_id FROM blocks") {
		w.blocks[pair{r.number("user_id"), r.number("blocked_id")}] = true
	}
	for _, r := range rowsOf(t, g.db, "SELECT id, owner_id, title, visibility, date_upload FROM photos") {
		w.photos[r.number("id")] = photo{r.number("owner_id"), r["title"], r["visibility"], r.number("date_upload")}
	}
	return w, last
}

// tasks returns the tasks that there are, each once, and deletes them.
func (g *ground) tasks(t fataler) []string {
	var list []string
	for _, r := range rowsOf(t, g.db, "SELECT type, subject, JSON_VALUE(args, '$.contact_id') AS contact, queue FROM tasks") {
		if (r["type"] == "refill") != (r["queue"] == "refill") {
			t.Fatalf("the task %v is in the wrong queue", r)
		}
		list = append(list, strings.TrimSpace(r["type"]+" "+r["subject"]+" "+r["contact"]))
	}
	if _, err := g.db.ExecContext(context.Background(), "DELETE FROM tasks"); err != nil {
		t.Fatalf("%v", err)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// demanded are the tasks that a change demands, by the table of docs/setup.md.
func demanded(before, after state) []string {
	set := make(map[string]bool)
	for p := range before.contacts {
		if _, still := after.contacts[p]; !still {
			set[fmt.Sprintf("remove_contact %d %d", p.user, p.other)] = true
		}
	}
	for p := range after.contacts {
		if _, known := before.contacts[p]; !known {
			set[fmt.Sprintf("add_contact %d %d", p.user, p.other)] = true
		}
	}
	for id := range before.members {
		if _, still := after.members[id]; !still {
			set[fmt.Sprintf("refill %d", id)] = true
			for p := range before.contacts {
				if p.other == id {
					set[fmt.Sprintf("remove_contact %d %d", p.user, id)] = true
				}
			}
		}
	}
	for id := range after.members {
		_, known := before.members[id]
		if after.lastUploads[id] > 0 && (!known || after.lastUploads[id] > before.lastUploads[id]) {
			set[fmt.Sprintf("upload %d", id)] = true
		}
		for p := range after.contacts {
			if !known && p.user == id {
				set[fmt.Sprintf("refill %d", id)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// raised checks the last uploads after a change: at least the uploads before and the new uploads, and not
// more than that and the newest photo.
func raised(t *rapid.T, before, after state) {
	least, most := make(map[int64]int64), make(map[int64]int64)
	for _, id := range after.rows {
		if slices.Contains(before.rows, id) {
			least[id] = before.lastUploads[id]
		}
		most[id] = least[id]
	}
	for id, p := range after.photos {
		if !p.isSeen() {
			continue
		}
		was, known := before.photos[id]
		most[p.owner] = max(most[p.owner], p.date)
		if !known || !was.isSeen() || was.owner != p.owner || p.date > was.date {
			least[p.owner] = max(least[p.owner], p.date)
		}
	}
	for _, id := range after.rows {
		if got := after.lastUploads[id]; got < least[id] || got > most[id] {
			t.Fatalf("the last upload of %d is %d, want %d to %d", id, got, least[id], most[id])
		}
	}
}

// change draws a statement that changes a table.
func (g *ground) change(t *rapid.T) string {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(g.values))).Draw(t, "table")
	table := g.database + "_site.`" + name + "`"
	columns := slices.Sorted(maps.Keys(g.values[name]))
	value := func(column string) string { return rapid.SampledFrom(g.values[name][column]).Draw(t, column) }
	some := func(what string) string {
		c := rapid.SampledFrom(columns).Draw(t, what)
		return c + " <=> " + value(c)
	}
	set := func() string {
		c := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == g.id })).Draw(t, "set")
		return c + " = " + value(c)
	}
	var values []string
	for _, c := range columns {
		values = append(values, value(c))
	}
	insert := " INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind < 3:
		return "INSERT" + insert
	case kind < 4:
		return "INSERT" + insert + " ON DUPLICATE KEY UPDATE " + set()
	case kind < 5 && name != g.users:
		return "REPLACE" + insert
	case kind < 8:
		return "UPDATE " + table + " SET " + set() + ", " + set() + " WHERE " + some("of")
	default:
		return "DELETE FROM " + table + " WHERE " + some("of") + " AND " + some("and")
	}
}

// check makes random changes, each of which must leave the tasks that it demands, and views that show
// the meaning of the site's rows.
func (g *ground) check(t *testing.T) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		for name := range g.values {
			rowless(t, g.db, g.database+"_site.`"+name+"`")
		}
		g.tasks(t)
		before := g.state(t)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			statement := g.change(t)
			t.Log(statement)
			var changed int64
			result, err := g.db.ExecContext(context.Background(), statement)
			if err == nil {
				changed, err = result.RowsAffected()
			}
			if err != nil && !strings.Contains(err.Error(), "Duplicate entry") {
				t.Fatalf("%s: %v", statement, err)
			}
			after := g.state(t)
			want, got := demanded(before, after), g.tasks(t)
			if changed > 1 { // a row may take a pair away that another makes, and triggers report both
				got = slices.DeleteFunc(got, func(task string) bool { return !slices.Contains(want, task) })
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: tasks (-want +got):\n%s", statement, diff)
			}
			raised(t, before, after)
			shown, last := g.views(t)
			opts := cmp.AllowUnexported(world{}, photo{}, grant{})
			if diff := cmp.Diff(after.world, shown, opts); diff != "" {
				t.Fatalf("%s: the views (-want +got):\n%s", statement, diff)
			}
			for id := range shown.members {
				if last[id] != after.lastUploads[id] {
					t.Fatalf("the view says that the last upload of %d is %d", id, last[id])
				}
			}
			before = after
		}
	})
}

func rowless(t fataler, db *sql.DB, table string) {
	if _, err := db.ExecContext(context.Background(), "DELETE FROM "+table); err != nil {
		t.Fatalf("%v", err)
	}
}

// Whatever a site does, the tasks are as the change demands, and the views show the truth. A check finds nothing.
func TestSitesOfAllKinds(t *testing.T) {
	t.Parallel()
	all := maps.Clone(sites)
	all["the example"] = example(t)
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, s)
			g.adopt(t)
			if found := g.findings(t); len(found) > 0 {
				t.Errorf("found %v", found)
			}
			g.check(t)
		})
	}
}
