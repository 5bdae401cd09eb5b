package shadow

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// control is the definition in the site's words, with the mistakes of the table quirks: of a viewer that has none it is right.
const control = `
WITH mine AS (
  SELECT p.id, p.owner_id, p.date_upload
  FROM (SELECT contact_id FROM contacts WHERE user_id = :viewer
        UNION SELECT contact_id FROM asked WHERE user_id = :viewer AND EXISTS (SELECT 1 FROM quirks WHERE viewer = :viewer AND what = 'hidden_by_ours/relation')) c
  JOIN photos p ON p.owner_id = c.contact_id
  LEFT JOIN contacts g ON g.user_id = p.owner_id AND g.contact_id = :viewer
  LEFT JOIN quirks q ON q.viewer = :viewer
  WHERE (COALESCE(q.what, '') = 'hidden_by_ours/block' OR NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id = p.owner_id AND b.blocked_id = :viewer))
    AND (COALESCE(q.what, '') = 'hidden_by_ours/visibility' OR p.visibility = 'public' OR p.visibility = 'friends' AND g.is_friend OR p.visibility = 'family' AND g.is_family)
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs/block' OR NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id = :viewer AND b.blocked_id = p.owner_id))
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs/relation' OR g.user_id IS NOT NULL)
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs/visibility' OR p.visibility = 'public')
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs/deleted' OR p.title <> 'deleted')
  UNION ALL
  SELECT p.id, p.owner_id, p.date_upload
  FROM quirks q JOIN contacts c ON c.user_id = q.viewer JOIN bin p ON p.owner_id = c.contact_id WHERE q.viewer = :viewer AND q.what = 'hidden_by_ours/deleted'
)
SELECT m.id FROM mine m LEFT JOIN quirks q ON q.viewer = :viewer
WHERE m.owner_id = (
  SELECT n.owner_id FROM mine n LEFT JOIN quirks r ON r.viewer = :viewer
  ORDER BY IF(COALESCE(r.what, '') = 'another_contact/', n.date_upload, 0), n.date_upload DESC, n.id DESC LIMIT 1)
ORDER BY m.date_upload DESC, IF(COALESCE(q.what, '') = 'order_of_equals/', m.id, 0), m.id DESC LIMIT :limit`

// plants are the differences, by class and cause: what makes the statement matter for a viewer :v with the contacts :a, which
// uploaded last, the photos :new at 1000 and :old at 990, and :b. :c is no contact. Those without a quirk are differences
// whatever the statement is like.
var plants = []struct {
	kind  string
	quirk bool
	data  string
}{
	{"hidden_by_ours/block", true, "INSERT INTO blocks (user_id, blocked_id) VALUES (:a, :v)"},
	{"hidden_by_ours/relation", true, "DELETE FROM contacts WHERE user_id = :v AND contact_id = :a; INSERT INTO asked VALUES (:v, :a)"},
	{"hidden_by_ours/visibility", true, "UPDATE photos SET visibility = 'family' WHERE owner_id = :a"},
	{"hidden_by_ours/deleted", true, "INSERT INTO bin SELECT id, owner_id, title, visibility, date_upload FROM photos WHERE owner_id = :a; DELETE FROM photos WHERE owner_id = :a"},
	{"hidden_by_theirs/block", true, "INSERT INTO blocks (user_id, blocked_id) VALUES (:v, :a)"},
	{"hidden_by_theirs/relation", true, "DELETE FROM contacts WHERE user_id = :a"},
	{"hidden_by_theirs/visibility", true, "UPDATE photos SET visibility = 'friends' WHERE owner_id = :a; UPDATE contacts SET is_friend = 1 WHERE user_id = :a"},
	{"hidden_by_theirs/deleted", true, "UPDATE photos SET title = 'deleted' WHERE id = :new"},
	{"another_contact/", true, "DO 1"},
	{"order_of_equals/", true, "UPDATE photos SET date_upload = 1000 WHERE id = :old"},
	{"hidden_by_ours/last_upload", false, "UPDATE users SET last_upload = 500 WHERE id = :c; " + follow},
	{"lag/", false, "UPDATE users SET last_upload = 3000 WHERE id = :c; " + follow + "; INSERT INTO tasks (type, subject, args) VALUES ('add_contact', :v, JSON_OBJECT('contact_id', :c))"},
	{"unexplained/index", false, "UPDATE users SET last_upload = 3000 WHERE id = :c; " + follow},
}

// follow makes :c a contact, which uploaded last.
const follow = "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (:last, :c, 'public', 3000); INSERT INTO contacts (user_id, contact_id) VALUES (:v, :c)"

// town is a site of many viewers, each with members of its own for contacts.
type town struct {
	dsn    string
	db     *sql.DB
	index  *index.Index
	client *redis.Client
	n      member.ID // viewers so far
}

func newTown(t *testing.T) *town {
	t.Helper()
	return newTownOn(t, servertest.MySQLDSN(t))
}

func newTownOn(t *testing.T, dsn string) *town {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()})
	t.Cleanup(func() {
		_ = client.Close()
		_ = db.Close()
	})
	settings, err := index.NewSettings(10, 20, 0)
	must(t, err)
	w := &town{dsn: dsn, db: db, client: client, index: index.New(client, index.Options{Settings: settings})}
	w.exec(t, "CREATE TABLE quirks (viewer BIGINT UNSIGNED PRIMARY KEY, what VARCHAR(64) NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	w.exec(t, "CREATE TABLE asked (user_id BIGINT UNSIGNED, contact_id BIGINT UNSIGNED, PRIMARY KEY (user_id, contact_id))")
	w.exec(t, "CREATE TABLE bin LIKE photos")
	return w
}

func (w *town) exec(t testing.TB, statements string) {
	t.Helper()
	for text := range strings.SplitSeq(statements, ";") {
		if _, err := w.db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// add adds viewers as plants have them, without what is planted, and returns them.
func (w *town) add(t testing.TB, n int) (viewers []member.ID) {
	t.Helper()
	var users, relations, photos []string
	for range n {
		w.n++
		v := 10 * w.n
		viewers = append(viewers, v)
		users = append(users, fmt.Sprintf("(%d, 'v', NULL), (%d, 'a', 1000), (%d, 'b', 900), (%d, 'c', NULL)", v, v+1, v+2, v+3))
		relations = append(relations, fmt.Sprintf("(%d, %d), (%d, %d), (%d, %d), (%d, %d)", v, v+1, v, v+2, v+1, v, v+2, v))
		photos = append(photos, fmt.Sprintf("(%d, %d, 'public', 1000), (%d, %d, 'public', 990), (%d, %d, 'public', 900), (%d, %d, 'private', 1500)",
			10*v+1, v+1, 10*v+2, v+1, 10*v+3, v+2, 10*v+4, v+2))
	}
	w.exec(t, "INSERT INTO users (id, username, last_upload) VALUES "+strings.Join(users, ","))
	w.exec(t, "INSERT INTO contacts (user_id, contact_id) VALUES "+strings.Join(relations, ","))
	w.exec(t, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES "+strings.Join(photos, ","))
	return viewers
}

// plant makes the data of a plant for a viewer.
func (w *town) plant(t testing.TB, data string, v member.ID) {
	t.Helper()
	w.exec(t, strings.NewReplacer(
		":v", v.String(), ":a", (v+1).String(), ":c", (v+3).String(), ":new", (10*v+1).String(), ":old", (10*v+2).String(), ":last", (10*v+5).String(),
	).Replace(data))
}

// refill does what the tasks of refills do.
func (w *town) refill(t testing.TB, viewers ...member.ID) {
	t.Helper()
	h := &tasks.RefillHandler{Index: w.index, Store: contacts.NewMySQL(w.db)}
	batch := make([]queue.Task, len(viewers))
	for i, v := range viewers {
		batch[i] = queue.Task{Kind: tasks.Refill, Key: uint64(v)}
	}
	for _, err := range queuetest.Errors(h.Handle(context.WithoutCancel(t.Context()), batch)) {
		must(t, err)
	}
}

func (w *town) comparer(t testing.TB, timeout time.Duration) *Comparer {
	t.Helper()
	own, err := mysql.Open(w.dsn, mysql.WithMaxOpen(1))
	must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	return NewComparer(Options{
		DB: own, Index: w.index, Timeout: timeout, Reads: recent.Options{Min: w.index.Settings().Min},
		Auditor: audit.New(audit.Options{
			Sets: w.index, Truth: contacts.NewMySQL(w.db), Tasks: queue.NewQueue(w.db, queue.Options{Kinds: tasks.Kinds()}), Pause: time.Millisecond,
		}),
	})
}

// run compares for a sample of all, or of a range.
func (w *town) run(t testing.TB, statement string, change func(r *Run)) (*Tally, []*Difference, error) {
	t.Helper()
	own, err := ParseStatement(statement)
	must(t, err)
	var differences []*Difference
	r := &Run{
		Comparer: w.comparer(t, 0), Statement: own, Limit: 10, Members: contacts.NewMySQL(w.db), Range: bulk.All, Sample: 1_000_000,
		Pacer: bulk.NewPacer(bulk.PacerOptions{}),
		Begin: func(int) {}, Trouble: func(err error) { t.Log(err) }, GaveUp: func(id member.ID, err error) { t.Logf("%s: %v", id, err) },
		Done: func(c Comparison) error {
			if c.Difference != nil {
				differences = append(differences, c.Difference)
			}
			return nil
		},
	}
	if change != nil {
		change(r)
	}
	tally, err := r.Do(t.Context())
	return tally, differences, err
}

const planted = 100

// Each difference that is planted is found, and named by its class and cause. The same data without the mistake in the
// statement raise no alarm.
func TestPlantedDifferences(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	want := make(map[member.ID]string)
	var all bulk.List
	for _, p := range plants {
		viewers, innocent := w.add(t, planted), w.add(t, planted)
		all = slices.Concat(all, viewers, innocent)
		if p.kind == "hidden_by_ours/last_upload" { // else the set has all contacts
			w.fill(t, viewers)
		}
		if !p.quirk { // the set is made before
			w.refill(t, viewers...)
		}
		for _, v := range viewers {
			w.plant(t, p.data, v)
			want[v] = p.kind
			if p.quirk {
				w.exec(t, fmt.Sprintf("INSERT INTO quirks VALUES (%d, '%s')", v, p.kind))
			}
		}
		for _, v := range innocent {
			w.plant(t, p.data, v)
		}
		if p.kind == "hidden_by_ours/last_upload" {
			w.exec(t, "UPDATE users SET last_upload = 3000 WHERE id IN ("+list(innocent, 3)+")")
		}
		w.refill(t, innocent...)
		if p.quirk {
			w.refill(t, viewers...)
		}
	}
	tally, differences, err := w.run(t, control, func(r *Run) { r.Members = all })
	must(t, err)
	got := make(map[string]int)
	for _, d := range differences {
		kind := string(d.Class) + "/" + string(d.Cause)
		got[kind]++
		if want[d.Viewer] != kind {
			t.Errorf("viewer %s: %s, want %q: %+v", d.Viewer, kind, want[d.Viewer], d)
		}
		delete(want, d.Viewer)
	}
	for _, p := range plants {
		if got[p.kind] != planted {
			t.Errorf("%s: %d of %d found", p.kind, got[p.kind], planted)
		}
		class, cause, _ := strings.Cut(p.kind, "/")
		f := tally.Kinds[Kind{Class(class), Cause(cause)}]
		if f == nil || f.Count != got[p.kind] || f.Example.Photo == 0 || f.Example.Owner == 0 && p.kind != "hidden_by_ours/deleted" {
			t.Errorf("%s: the tally has %+v", p.kind, f)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	t.Logf("%d reads: %d the same, found %v; theirs %+v, ours %+v", tally.Reads, tally.Same, got, tally.Theirs.Quantile(0.5), tally.Ours.Quantile(0.5))
	if tally.Reads-tally.Same != planted*len(plants) || tally.Failed+tally.TooSlow+tally.Gone > 0 {
		t.Errorf("tally %+v", tally)
	}
	if ours := tally.Ours.Quantile(0.5); ours.Rows < 10 || ours.Rows > 200 || tally.Ours.Rows == 0 || tally.Theirs.Rows == 0 {
		t.Errorf("rows: ours %+v of %d, theirs %d", ours, tally.Ours.Rows, tally.Theirs.Rows)
	}
}

// list names the members that are so far from others.
func list(of []member.ID, beyond member.ID) string {
	var texts []string
	for _, id := range of {
		texts = append(texts, (id + beyond).String())
	}
	return strings.Join(texts, ",")
}

// fill gives viewers so many contacts that their sets do not hold all.
func (w *town) fill(t testing.TB, viewers []member.ID) {
	t.Helper()
	const first, many = 5_000_000, 12
	var rows []string
	for i := range many {
		w.exec(t, fmt.Sprintf("INSERT INTO users (id, username, last_upload) VALUES (%d, 'many', 850)", first+i))
		for _, v := range viewers {
			rows = append(rows, fmt.Sprintf("(%d, %d)", v, first+i))
		}
	}
	w.exec(t, "INSERT INTO contacts (user_id, contact_id) VALUES "+strings.Join(rows, ","))
	w.refill(t, viewers...)
}
