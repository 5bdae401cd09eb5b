package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// control is the definition of the read, as a site would have it.
const control = `
WITH mine AS (
  SELECT p.id, p.owner_id, p.date_upload
  FROM contacts c
  JOIN users o ON o.id = c.contact_id
  JOIN photos p ON p.owner_id = o.id
  LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = c.user_id
  LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = c.user_id
  WHERE c.user_id = :viewer AND b.user_id IS NULL AND (p.visibility = 'public' OR p.visibility = 'friends' AND g.is_friend
    OR p.visibility = 'family' AND g.is_family OR p.visibility = 'friends_family' AND (g.is_friend OR g.is_family))
)
SELECT id FROM mine WHERE owner_id = (SELECT owner_id FROM mine ORDER BY date_upload DESC, id DESC LIMIT 1)
ORDER BY date_upload DESC, id DESC LIMIT :limit`

// shadowJSONOf runs shadow, and returns its exit code, how many differences it printed, and the summary.
func shadowJSONOf(t *testing.T, args ...string) (code, differences int, s shadowSummary) {
	t.Helper()
	code, out, errs := command(t, nil, append([]string{"shadow", "-o", "json", "--rate=0", "--pace=full"}, args...)...)
	ended := false
	for line := range strings.Lines(out) {
		var l struct{ Summary json.RawMessage }
		must(t, json.Unmarshal([]byte(line), &l))
		if l.Summary == nil {
			differences++
			continue
		}
		ended = true
		// Ids are strings in the examples, which are looked at as text.
		var kept map[string]json.RawMessage
		must(t, json.Unmarshal(l.Summary, &kept))
		for i, kind := range asList(t, kept["differences"]) {
			s.Differences = append(s.Differences, shadowKind{})
			must(t, json.Unmarshal(kind["class"], &s.Differences[i].Class))
			must(t, json.Unmarshal(kind["count"], &s.Differences[i].Count))
		}
		delete(kept, "differences")
		rest, err := json.Marshal(kept)
		must(t, err)
		must(t, json.Unmarshal(rest, &s))
	}
	if !ended {
		t.Fatalf("no summary; exit code %d: %s%s", code, out, errs)
	}
	return code, differences, s
}

func asList(t *testing.T, raw json.RawMessage) (list []map[string]json.RawMessage) {
	t.Helper()
	must(t, json.Unmarshal(raw, &list))
	return list
}

// of returns how many differences of a class there are.
func (s *shadowSummary) of(class string) (n int) {
	for _, d := range s.Differences {
		if string(d.Class) == class {
			n += d.Count
		}
	}
	return n
}

// A right statement differs nowhere, and the summary has all that one wants to know.
func TestShadowOfTheSame(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 300)
	m.backfill(t)
	code, out, errs := m.run(t, "shadow", "--rate=0", "--control", control, "--sample=100", "--progress=1ns")
	if code != exitOK {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	for _, want := range []string{
		"ANSWERS  P50", "\ntheirs   ", "\nours     ", "of each 100 rows that MySQL reads for theirs, it would read ",
		"100 reads of a sample of 100: 100 the same, 0 differ, of which 0 are harmless; ", "\n100 reads, 0 unexplained: below 3 % of the members with 95 % confidence (3/N)\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "FOUND") || strings.Contains(out, "walked") || !strings.Contains(errs, "of 100 members") {
		t.Errorf("printed\n%s%s", out, errs)
	}
	code, differences, s := shadowJSONOf(t, m.args("--control", control)...)
	if code != exitOK || differences != 0 || !s.Complete || s.Reads != 300 || s.Same != 300 || s.Below != 0.01 || s.Ours.RowsAll == 0 || s.Theirs.P50 <= 0 || s.RowsLeft == 0 {
		t.Errorf("exit code %d, %d differences: %+v", code, differences, s)
	}
	if code, out, errs := m.run(t, "shadow", "7-9", "--control", control); code != exitOK || !strings.Contains(out, "3 reads of a sample of 3: 3 the same") {
		t.Errorf("of a range: exit code %d: %s%s", code, out, errs)
	}
}

// A difference is in the table with an example that explain shows, and the exit code says so.
func TestShadowOfDifferences(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 30)
	m.backfill(t)
	s := site.NewMySQL(m.db)
	for owner := member.ID(2); owner <= 4; owner++ {
		must(t, s.Block(t.Context(), owner, 1))
	}
	unblocked := strings.Replace(control, "b.user_id IS NULL", "TRUE", 1)
	code, out, errs := m.run(t, "shadow", "--rate=0", "--control", unblocked)
	// A slow machine has more to say before.
	if code != exitWrong || !strings.HasSuffix(errs, "activityd: 1 of 30 answers differ\n") ||
		!strings.Contains(out, "1      hidden by ours  block  activityd explain 1: photo 4 of member 4: the owner blocks the viewer\n") ||
		!strings.Contains(out, "30 reads, 0 unexplained: below 10 % ") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, differences, sum := shadowJSONOf(t, m.args("--control", unblocked)...); code != exitWrong || differences != 1 || sum.Harmful != 1 || sum.of("hidden_by_ours") != 1 {
		t.Errorf("exit code %d, %d differences: %+v", code, differences, sum)
	}
}

func TestShadowRefusesNonsense(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 5)
	m.backfill(t)
	for want, args := range map[string][]string{
		"--control: the statement cannot be used: it is empty: want a SELECT": {},
		"it begins with DELETE: want a SELECT":                                {"--control=DELETE FROM photos WHERE owner_id = :viewer"},
		"want one statement, and there is more behind the semicolon":          {"--control=SELECT :viewer; DROP TABLE photos"},
		"unknown placeholder :user: want :viewer and :limit":                  {"--control=SELECT :user"},
		"it has no :viewer":                       {"--control=SELECT 1"},
		"--limit: is 51: want 1 to 50":            {"--control=SELECT :viewer", "--limit=51"},
		"--sample: is 0: want 1 to 1000000":       {"--control=SELECT :viewer", "--sample=0"},
		"--rate: is -1: want 0 or more":           {"--control=SELECT :viewer", "--rate=-1"},
		"--pace: is \"idle\": want yield or full": {"--control=SELECT :viewer", "--pace=idle"},
		"--duration: is -1s: want 0 or more":      {"--control=SELECT :viewer", "--duration=-1s"},
		"--timeout: is 1ms: want 10ms to 1m":      {"--control=SELECT :viewer", "--timeout=1ms"},
		"FROM-TO":                                 {"9-7", "--control=SELECT :viewer"},
		"no such member among member 4711":        {"4711", "--control=SELECT :viewer"},
		"create the missing tables":               {"--control=SELECT id FROM nowhere WHERE a = :viewer"},
		"You have an error in your SQL syntax":    {"--control=SELECT FROM :viewer :limit"},
		"its column name has \"member\": want the id of a photo in the first column": {"--control=SELECT 'member' AS name, :viewer"},
		"its column id has \"\": want the id of a photo":                             {"--control=SELECT NULL AS id, :viewer"},
		"which a read-only transaction refuses":                                      {"--control=SELECT :viewer FROM (SELECT 1) x WHERE change_it() = 1"},
	} {
		if strings.Contains(want, "read-only") {
			_, err := m.db.ExecContext(t.Context(), "CREATE FUNCTION change_it() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM photos; RETURN 1; END")
			must(t, err)
		}
		if code, out, errs := m.run(t, append([]string{"shadow"}, args...)...); code != exitFailed || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%v: exit code %d: %s%s, want %q", args, code, out, errs, want)
		}
	}
}

// A user that can only read is enough.
func TestShadowWithTheRightToReadOnly(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 20)
	m.backfill(t)
	var database string
	must(t, m.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database))
	user := "reader_" + database
	for _, statement := range []string{"CREATE USER " + user + "@localhost IDENTIFIED BY ''", fmt.Sprintf("GRANT SELECT ON %s.* TO %s@localhost", database, user)} {
		_, err := m.db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	t.Cleanup(func() { _, _ = m.db.ExecContext(context.Background(), "DROP USER "+user+"@localhost") })
	_, rest, _ := strings.Cut(m.dsn, "@")
	reader := *m
	reader.dsn = user + "@" + rest
	must(t, m.client.ZRem(t.Context(), "user_8", "11").Err()) // which the audit looks at, too
	code, out, errs := reader.run(t, "shadow", "--rate=0", "--control", control)
	if code != exitWrong || !strings.Contains(out, "20 reads of a sample of 20: 19 the same, 1 differ") || !strings.Contains(out, "unexplained  index  activityd explain 8: ") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// runningWith returns how many statements of others have a text in them.
func runningWith(t *testing.T, db *sql.DB, text string) (n int) {
	t.Helper()
	list, err := servertest.Processes(t.Context(), db)
	must(t, err)
	for _, p := range list {
		if strings.Contains(p.Info, text) {
			n++
		}
	}
	return n
}

// A statement that hangs is ended by the server. Others go on, but three in a row end the run.
func TestShadowEndsAStatementThatHangs(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 12)
	m.backfill(t)
	code, out, errs := m.run(t, "shadow", "--rate=0", "--timeout=100ms", "--control=SELECT p.id, SLEEP(100) FROM photos p WHERE p.owner_id = :viewer")
	if code != exitFailed || out != "" || !strings.Contains(errs, "3 members in a row: the site's statement took too long: more than 100ms for member ") || strings.Count(errs, "gave up member") != 3 {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if n := runningWith(t, m.db, "SLEEP(100)"); n > 0 {
		t.Errorf("%d statements run on", n)
	}
	code, out, errs = m.run(t, "shadow", "--rate=0", "--timeout=100ms", "--control="+strings.Replace(control, "SELECT id", "SELECT IF(:viewer = 5, SLEEP(100) * 0 + id, id)", 1))
	if code != exitFailed || !strings.Contains(out, "11 reads of a sample of 12: 11 the same") || !strings.Contains(out, "1 statements took too long") || !strings.Contains(errs, "1 members could not be compared") {
		t.Errorf("one of them: exit code %d: %s%s", code, out, errs)
	}
}

// When MySQL hangs, the run ends, and says so.
func TestShadowWithAMySQLThatHangs(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	m := massesOn(t, 400, server.DSN(servertest.Database), servertest.Redis(t))
	m.backfill(t)
	p := m.spawn(t, "shadow", "--rate=20", "--timeout=100ms", "--progress=1ns", "--control="+control)
	eventually(t, "it compares", func() bool { return strings.Contains(p.said(), " of 400 members") })
	must(t, server.Pause())
	defer func() { must(t, server.Resume()) }()
	began := time.Now()
	code := p.wait()
	if took := time.Since(began); code != exitFailed || took > 2*time.Minute || !strings.Contains(p.said(), "given up after 30s: ") || !strings.Contains(p.said(), "database unavailable") {
		t.Errorf("exit code %d after %v: %s", code, took, p.said())
	}
	if out := p.stdout.String(); !strings.Contains(out, "reads so far of a sample of 400") {
		t.Errorf("printed %s", out)
	}
}

// changer makes changes of all kinds, by chance.
type changer struct {
	site.Site
	random *rand.Rand
	from   member.ID // ids of members begin here
	n      int       // members
	date   uint64
}

func (c *changer) one() member.ID { return c.from + member.ID(c.random.IntN(c.n)) }

func (c *changer) change(ctx context.Context) error {
	grant := site.Grant{Friend: c.random.IntN(2) == 0, Family: c.random.IntN(3) == 0}
	classes := contacts.Classes()
	switch c.random.IntN(12) {
	case 0, 1, 2, 3:
		c.date += uint64(c.random.IntN(2)) // some have the same
		_, err := c.Upload(ctx, site.Photo{Owner: c.one(), Visibility: classes[c.random.IntN(len(classes))], DateUpload: c.date})
		return err
	case 4, 5, 6:
		return c.SetContact(ctx, c.one(), c.one(), grant)
	case 7, 8:
		return c.RemoveContact(ctx, c.one(), c.one())
	case 9:
		return c.Block(ctx, c.one(), c.one())
	case 10:
		return c.Unblock(ctx, c.one(), c.one())
	}
	return c.SetVisibility(ctx, uint64(c.random.IntN(500)+1), classes[c.random.IntN(len(classes))])
}

// While members make changes of all kinds and workers follow, no difference is found but lag. While no worker
// does, pending tasks explain each. Without the tasks nothing does.
func TestShadowBesideChanges(t *testing.T) {
	t.Parallel()
	r := startAll(t)
	const n = 60
	changes := func(seed uint64) *changer { // each has later dates
		return &changer{Site: r.site, random: rand.New(rand.NewPCG(seed, 1)), from: 1000, n: n, date: 1_000_000 * (seed + 1)}
	}
	load(t, changes(0))
	succeed(t, append([]string{"backfill"}, r.flags()...)...)

	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for seed := range uint64(2) {
		all.Go(func() {
			tick := time.NewTicker(25 * time.Millisecond)
			defer tick.Stop()
			for c := changes(seed + 1); ctx.Err() == nil; <-tick.C {
				if err := c.change(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, contacts.ErrNoMember) {
					t.Errorf("change: %v", err)
					return
				}
			}
		})
	}
	reads, lag := 0, 0
	for range 3 {
		code, _, s := shadowJSONOf(t, append(r.flags(), "--control", control)...)
		reads, lag = reads+s.Reads, lag+s.of("lag")
		if code != exitOK || s.Harmful > 0 || s.Reads != n || s.Failed+s.TooSlow > 0 {
			t.Errorf("exit code %d: %+v", code, s)
		}
	}
	stop()
	all.Wait()
	t.Logf("%d reads beside changes: %d lag", reads, lag)

	r.awaitTasks(t)
	if code, differences, s := shadowJSONOf(t, append(r.flags(), "--control", control)...); code != exitOK || differences > 0 || s.Same != n {
		t.Errorf("at rest: exit code %d: %+v", code, s)
	}
	must(t, r.stop())
	for c, i := changes(9), 0; i < 60; i++ {
		if err := c.change(t.Context()); err != nil && !errors.Is(err, contacts.ErrNoMember) {
			t.Fatal(err)
		}
	}
	code, _, s := shadowJSONOf(t, append(r.flags(), "--control", control)...)
	if code != exitOK || s.of("lag") == 0 || s.Harmful > 0 {
		t.Errorf("without workers: exit code %d: %+v", code, s)
	}
	behind := s.of("lag")
	_, err := r.db.ExecContext(t.Context(), "DELETE FROM tasks")
	must(t, err)
	code, _, s = shadowJSONOf(t, append(r.flags(), "--control", control)...)
	if code != exitWrong || s.Unexplained != behind || s.of("lag") > 0 {
		t.Errorf("without tasks: exit code %d, and %d were behind: %+v", code, behind, s)
	}
	t.Logf("%d behind without workers", behind)
}

// load makes the members, who have some dozens of contacts and some photos each.
func load(t *testing.T, c *changer) {
	t.Helper()
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for i := range c.n {
		id := c.from + member.ID(i)
		members = append(members, site.Member{ID: id, Username: "member " + id.String()})
		for range 20 {
			relations = append(relations, site.Relation{User: id, Contact: c.one(), Grant: site.Grant{Friend: c.random.IntN(2) == 0}})
		}
		for j := range 3 {
			photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Classes()[c.random.IntN(5)], DateUpload: uint64(1000 + 3*i + j)})
		}
	}
	must(t, c.LoadMembers(t.Context(), members))
	must(t, c.LoadContacts(t.Context(), relations))
	must(t, c.LoadPhotos(t.Context(), photos))
}

// By HTTP the site's answer is asked for again until it and ours are known to differ.
func TestShadowByHTTP(t *testing.T) {
	t.Parallel()
	r := makeExplained(t) // 1 is shown the photo 109000; 110, which blocks it, uploaded later
	asked := time.Now().Unix()
	post := func(answer, again string) (int, map[string]any) {
		asked++ // each answer is of a second of its own
		body := fmt.Sprintf(`{"viewer":"1","answer":%s,"asked_at":%d`, answer, asked)
		if again != "" {
			body += fmt.Sprintf(`,"ask_again":%q`, again)
		}
		response, err := http.Post(r.url+"/v1/shadow", "application/json", strings.NewReader(body+"}"))
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		raw, err := io.ReadAll(response.Body)
		must(t, err)
		var out map[string]any
		must(t, json.Unmarshal(raw, &out))
		return response.StatusCode, out
	}
	if code, out := post(`["109000"]`, ""); code != http.StatusOK || len(out) != 1 || out["result"] != "same" {
		t.Errorf("%d %v", code, out)
	}
	code, out := post(`[110000]`, "")
	if code != http.StatusOK || len(out) != 2 || out["result"] != "ask_again" {
		t.Fatalf("%d %v", code, out)
	}
	code, out = post(`["110000"]`, out["ask_again"].(string))
	if code != http.StatusOK || out["result"] != "different" || out["class"] != "hidden_by_ours" || out["cause"] != "block" || out["photo_id"] != "110000" || out["contact_id"] != "110" {
		t.Errorf("%d %v", code, out)
	}
}
