package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// statementsOf returns the statements of a text between two of its comments that begin with a number.
func statementsOf(t *testing.T, text, from, to string) []string {
	t.Helper()
	_, text, found := strings.Cut(text, "\n-- "+from+".")
	if !found {
		t.Fatalf("there is no part %s of %s", from, text)
	}
	if to != "" {
		text, _, _ = strings.Cut(text, "\n-- "+to+".")
	}
	_, text, _ = strings.Cut(text, "\n")
	return statements(text)
}

// TestTheExampleOfASiteByTheLetter follows docs/setup.md on examples/site, as its reader would, and asks for answers
// before and after changes that the triggers report.
func TestTheExampleOfASiteByTheLetter(t *testing.T) {
	t.Parallel()
	tables, err := os.ReadFile("../../examples/site/tables.sql")
	must(t, err)
	m, err := localserver.StartMySQL(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.CreateDatabase(t.Context(), "site"))
	admin := queueOf(t, m.DSN("site"))
	execOn(t, admin, statements(string(tables)))
	execOn(t, admin, []string{
		"CREATE USER 'site'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE ON site.* TO 'site'@'%'",
		"INSERT INTO members (id, nick) VALUES (1, 'ada'), (2, 'ben'), (3, NULL), (4, 'eve'), (5, NULL)",
		"INSERT INTO friendships (asked_by, asked, state, is_family) VALUES (2, 1, 1, 0), (3, 1, 0, 0), (4, 5, 1, 1)",
		// Very many pictures: each kind is a fifth, and half are deleted.
		"INSERT INTO pictures (owner, privacy, created_at, deleted_at) SELECT 4, d.n % 5, TIMESTAMPADD(SECOND, a.n * 1000 + b.n * 100 + c.n * 10 + d.n, '2012-01-01'), IF(c.n < 5, NULL, '2013-01-01')" +
			" FROM " + digits("a") + ", " + digits("b") + ", " + digits("c") + ", " + digits("d"),
		"INSERT INTO pictures (owner, caption, privacy, created_at) VALUES (2, 'of friends', 1, '2013-03-19 03:57:10'), (3, 'of all', 4, '2013-03-19 03:57:11')",
	})
	before := remains(t, admin)
	const file = "../../examples/site/site.map"
	flags := []string{"--map=" + file, "--mysql-dsn=" + m.DSN("activityd")}
	schema := func(args ...string) (int, string) {
		code, out, errs := command(t, nil, append(append([]string{"schema"}, args...), flags...)...)
		return code, out + errs
	}
	if code, out := schema("--apply"); code != exitFailed || !strings.Contains(out, file+":11: site.members has no column last_upload\n  ALTER TABLE `site`.`members` ADD COLUMN") {
		t.Errorf("without the columns: exit code %d: %s", code, out)
	}
	printed := succeed(t, "schema", "--map="+file)
	execOn(t, admin, statementsOf(t, printed, "1", "2"))
	if code, out := schema("--check"); code != exitWrong || !strings.Contains(out, "users: there is no such table") || strings.Count(out, "schema --apply") != strings.Count(out, "schema --apply --map "+file) {
		t.Errorf("schema --check of an empty database: exit code %d: %s", code, out)
	}
	execOn(t, admin, statementsOf(t, printed, "2", "3"))
	if code, out := schema("--apply"); code != exitOK || !strings.Contains(out, allThere) {
		t.Errorf("schema --apply: exit code %d: %s", code, out)
	}
	execOn(t, admin, statementsOf(t, printed, "4", "5"))
	if code, out := schema("--triggers", "--apply"); code != exitOK || !strings.HasPrefix(out, "the 10 triggers are installed\n") {
		t.Errorf("schema --triggers --apply: exit code %d: %s", code, out)
	}
	execOn(t, admin, statementsOf(t, printed, "4", "5"))
	execOn(t, admin, []string{"INSERT INTO activityd.contacts (user_id, contact_id) VALUES (1, 3)"}) // a copy of the deleted row
	execOn(t, admin, statementsOf(t, printed, "5", ""))
	if n := number(t, admin, "SELECT COUNT(*) FROM activityd.tasks"); n > 0 {
		t.Errorf("what there was before became %d tasks", n)
	}
	if code, out := schema("--check"); code != exitOK || out != nothingWrong {
		t.Errorf("schema --check: exit code %d: %s", code, out)
	}

	if rows := rowsOfARead(t, m.DSN("activityd"), 5, 4); rows > 300 {
		t.Errorf("a read of the owner of 10,000 pictures reads %d rows", rows)
	}
	setup, err := os.ReadFile("../../docs/setup.md")
	must(t, err)
	execOn(t, admin, []string{"CREATE USER 'activityd'@'%' IDENTIFIED BY 'secret'"})
	execOn(t, admin, rightsOnViews.FindAllString(strings.ReplaceAll(string(setup), "ON site.", "ON activityd."), -1))

	redisURL, dsn := servertest.Redis(t).URL(), as(m, "activityd", "activityd")
	succeed(t, "backfill", "--mysql-dsn="+dsn, "--redis-url="+redisURL)
	r := start(t, configFor(t, dsn, redisURL))
	site := queueOf(t, as(m, "site", "site")) // without a right to anything else
	shows := func(when, contact string, photos int) {
		t.Helper()
		eventually(t, when, func() bool {
			return number(t, admin, "SELECT COUNT(*) FROM activityd.tasks WHERE type <> 'check_range'") == 0 // the sweep's is always there
		})
		if a := r.read(t, 1); a.contact() != contact || len(a.Photos) != photos {
			t.Errorf("%s: %+v", when, a)
		}
	}
	shows("at first", "2", 1)
	for _, change := range []struct {
		do, contact string
		photos      int
	}{
		{"UPDATE friendships SET state = 1 WHERE asked_by = 3", "3", 1},
		{"UPDATE members SET deleted_at = UTC_TIMESTAMP() WHERE id = 3", "2", 1},
		{"UPDATE members SET deleted_at = NULL WHERE id = 3", "3", 1},
		{"INSERT INTO pictures (owner, privacy, created_at) VALUES (2, 4, '2013-03-19 03:57:12')", "2", 2},
		{"UPDATE pictures SET deleted_at = UTC_TIMESTAMP() WHERE owner = 2", "3", 1},
		{"INSERT INTO bans (owner, banned) VALUES (3, 1)", "", 0},
		{"UPDATE pictures SET deleted_at = NULL WHERE caption = 'of friends'", "2", 1},
		{"UPDATE friendships SET state = 2 WHERE asked_by = 2", "", 0},
	} {
		execOn(t, site, []string{change.do})
		shows(change.do, change.contact, change.photos)
	}
	must(t, r.stop())
	if code, out := schema("--triggers", "--remove"); code != exitOK || out != "removed 10 triggers\n" {
		t.Errorf("schema --triggers --remove: exit code %d: %s", code, out)
	}
	if _, err := admin.ExecContext(t.Context(), "INSERT INTO activityd.photos (owner_id, visibility) VALUES (3, 'public')"); err == nil {
		t.Error("a photo was inserted into the view")
	}

	// A mistake has its place, and the exit code of CI.
	text, err := os.ReadFile(file)
	must(t, err)
	broken := filepath.Join(t.TempDir(), "broken.map")
	must(t, os.WriteFile(broken, []byte(strings.Replace(string(text), "= nick", "= nickname", 1)), 0o600))
	code, out, errs := command(t, nil, "schema", "--check", "--map="+broken, "--mysql-dsn="+m.DSN("activityd"))
	if code != exitWrong || !strings.Contains(out, "broken.map:10: username: site.members has no column nickname") {
		t.Errorf("a mistake: exit code %d: %s%s", code, out, errs)
	}
	must(t, os.WriteFile(broken, []byte(strings.Replace(string(text), "= nick", "", 1)), 0o600))
	if code, _, errs := command(t, nil, "schema", "--triggers", "--map="+broken); code != exitFailed || !strings.Contains(errs, "broken.map:10: want [section], key = value") {
		t.Errorf("a line that is none: exit code %d: %s", code, errs)
	}

	execOn(t, admin, pageSQL(t, "docs/setup.md")["remove"])
	if diff := cmp.Diff(slices.DeleteFunc(before, func(what string) bool { return what == "database activityd" }), remains(t, admin)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// rightsOnViews are the rights of activityd's user in docs/setup.md.
var rightsOnViews = regexp.MustCompile(`(?m)^GRANT .* TO 'activityd'@'%'`)
