package check

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is the definition in the site's words, with the mistakes of the table quirks: of a viewer that has none it is right.
const site = `
WITH mine AS (
  SELECT p.id, p.owner_id, p.date_upload, COALESCE(q.what, '') AS what
  FROM (SELECT contact_id FROM contacts WHERE user_id = :viewer
        UNION SELECT contact_id FROM asked WHERE user_id = :viewer AND EXISTS (SELECT 1 FROM quirks WHERE viewer = :viewer AND what = 'hidden_by_ours_relation')) c
  JOIN photos p ON p.owner_id = c.contact_id
  LEFT JOIN contacts g ON g.user_id = p.owner_id AND g.contact_id = :viewer
  LEFT JOIN quirks q ON q.viewer = :viewer
  WHERE (COALESCE(q.what, '') = 'hidden_by_ours_block' OR NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id IN (p.owner_id, :viewer) AND b.blocked_id IN (p.owner_id, :viewer)))
    AND (COALESCE(q.what, '') = 'hidden_by_ours_visibility' OR p.visibility = 'public' OR p.visibility = 'friends' AND g.is_friend OR p.visibility = 'family' AND g.is_family)
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs_relation' OR g.user_id IS NOT NULL)
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs_visibility' OR p.visibility = 'public')
    AND (COALESCE(q.what, '') <> 'hidden_by_theirs_condition' OR p.title <> 'deleted')
  UNION ALL
  SELECT p.id, p.owner_id, p.date_upload, q.what
  FROM quirks q JOIN contacts c ON c.user_id = q.viewer JOIN bin p ON p.owner_id = c.contact_id WHERE q.viewer = :viewer AND q.what = 'hidden_by_ours_deleted'
)
SELECT m.id, 'a title' FROM mine m
WHERE m.owner_id = (SELECT n.owner_id FROM mine n ORDER BY IF(n.what = 'another_contact', n.date_upload, 0), n.date_upload DESC, n.id DESC LIMIT 1)
ORDER BY IF(m.what = 'another_order', m.date_upload, 0), m.date_upload DESC, IF(m.what = 'order_of_equals', m.id, 0), m.id DESC LIMIT :limit`

// plants are the differences: data by which a mistake of the statement matters for a viewer :v with the contacts :a, the last to
// upload, with the photos :new at 1000 and :old at 990, and :b. :c is no contact. Without the mistake the last is a difference, too.
var plants = []struct {
	class Class
	data  string
}{
	{"hidden_by_ours_block", "INSERT INTO blocks (user_id, blocked_id) VALUES (:a, :v)"},
	{"hidden_by_ours_relation", "DELETE FROM contacts WHERE user_id = :v AND contact_id = :a; INSERT INTO asked VALUES (:v, :a)"},
	{"hidden_by_ours_visibility", "UPDATE photos SET visibility = 'family' WHERE owner_id = :a"},
	{"hidden_by_ours_deleted", "INSERT INTO bin SELECT id, owner_id, title, visibility, date_upload FROM photos WHERE owner_id = :a; DELETE FROM photos WHERE owner_id = :a"},
	{"hidden_by_theirs_relation", "DELETE FROM contacts WHERE user_id = :a"},
	{"hidden_by_theirs_visibility", "UPDATE photos SET visibility = 'friends' WHERE owner_id = :a; UPDATE contacts SET is_friend = 1 WHERE user_id = :a"},
	{"hidden_by_theirs_condition", "UPDATE photos SET title = 'deleted' WHERE id = :new"},
	{"another_contact", "DO 1"},
	{"another_order", "DO 1"},
	{"order_of_equals", "UPDATE photos SET date_upload = 1000 WHERE id = :old"},
	{"hidden_by_ours_last_upload", "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (:last, :c, 'public', 3000); INSERT INTO contacts (user_id, contact_id) VALUES (:v, :c)"},
}

// town is a site of many viewers, each with members of its own for contacts.
type town struct {
	dsn string
	db  *sql.DB
	n   member.ID // viewers so far
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{dsn: servertest.MySQLDSN(t)}
	var err error
	w.db, err = mysql.Open(w.dsn)
	must(t, err)
	t.Cleanup(func() { _ = w.db.Close() })
	w.exec(t, "CREATE TABLE quirks (viewer BIGINT UNSIGNED PRIMARY KEY, what VARCHAR(64) NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	w.exec(t, "CREATE TABLE asked (user_id BIGINT UNSIGNED, contact_id BIGINT UNSIGNED, PRIMARY KEY (user_id, contact_id)); CREATE TABLE bin LIKE photos")
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

// add adds a viewer as plants have it, and then the data.
func (w *town) add(t testing.TB, data string) (viewer member.ID) {
	t.Helper()
	w.n++
	v := 10 * w.n
	w.exec(t, strings.NewReplacer(":v", v.String(), ":a", (v+1).String(), ":b", (v+2).String(), ":c", (v+3).String(),
		":new", (10*v+1).String(), ":old", (10*v+2).String(), ":mid", (10*v+3).String(), ":own", (10*v+4).String(), ":last", (10*v+5).String()).Replace(`
INSERT INTO users (id, username, last_upload) VALUES (:v, 'v', NULL), (:a, 'a', 1000), (:b, 'b', 900), (:c, 'c', NULL);
INSERT INTO contacts (user_id, contact_id) VALUES (:v, :a), (:v, :b), (:a, :v), (:b, :v);
INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (:new, :a, 'public', 1000), (:old, :a, 'public', 990), (:mid, :b, 'public', 900), (:own, :b, 'private', 1500);`+data))
	return v
}

func (w *town) against(t testing.TB, statement string, timeout time.Duration) *Against {
	t.Helper()
	own, err := ParseStatement(statement)
	must(t, err)
	db, err := mysql.Open(w.dsn, mysql.WithMaxOpen(1))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &Against{DB: db, Statement: own, Limit: 10, Timeout: timeout}
}

// Each difference that is planted is found, and has its class. The same data without the mistake in the statement are no difference.
func TestPlantedDifferences(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	want := make(map[member.ID]Class)
	for _, p := range plants {
		for range 3 {
			planted, innocent := w.add(t, p.data), w.add(t, p.data)
			w.exec(t, fmt.Sprintf("INSERT INTO quirks VALUES (%d, '%s')", planted, p.class))
			want[planted], want[innocent] = p.class, ""
			if p.class == "hidden_by_ours_last_upload" {
				w.exec(t, fmt.Sprintf("UPDATE users SET last_upload = 3000 WHERE id = %d", innocent+3))
			}
		}
	}
	a := w.against(t, site, time.Minute)
	for v, class := range want {
		switch d, err := a.Compare(t.Context(), v); {
		case err != nil:
			t.Error(err)
		case d == nil && class != "":
			t.Errorf("%s: not found", class)
		case d != nil && (d.Class != class || d.Photo == 0 || d.Owner == 0 && class != "hidden_by_ours_deleted" || Meanings[class] == ""):
			t.Errorf("%+v, want %q", d, class)
		}
	}
	if len(plants)+1 != len(Meanings) { // no statement can plant "unexplained"
		t.Errorf("%d of %d classes are planted", len(plants), len(Meanings))
	}
}

func TestASampleHasNoMemberTwice(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	for range 5 {
		w.add(t, "DO 1")
	}
	a := w.against(t, site, time.Minute)
	for n, want := range map[int]int{3: 3, 1000: 12} {
		ids, err := a.Sample(t.Context(), 11, 40, n)
		must(t, err)
		slices.Sort(ids)
		if len(ids) != want || len(slices.Compact(ids)) != want || ids[0] < 11 || ids[want-1] > 40 {
			t.Errorf("%d of 12: %v", n, ids)
		}
	}
}

// A statement that cannot be used ends with an error that says why.
func TestStatementsThatFail(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	v := w.add(t, "DO 1")
	for statement, want := range map[string]string{
		"SELECT SLEEP(100) + :viewer":                     "takes longer than 500ms",
		"SELECT username FROM users WHERE id = :viewer":   "first column",
		"SELECT NULL, :viewer":                            "first column",
		"SELECT nothing FROM photos WHERE id = :viewer":   "nothing",
		"SELECT lied(:viewer)":                            "lied",
		"SELECT p.id FROM photos p WHERE id = :viewer + ": "syntax",
	} {
		if d, err := w.against(t, statement, 500*time.Millisecond).Compare(t.Context(), v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", statement, d, err)
		}
	}
	if _, err := w.against(t, site, time.Minute).Compare(t.Context(), 4_000_000); err == nil || !strings.Contains(err.Error(), contacts.ErrNoMember.Error()) {
		t.Errorf("no member: %v", err)
	}
}
