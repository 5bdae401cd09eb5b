package mapping_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestMistakesAreNamedByTheirLine damages the description of the example.
func TestMistakesAreNamedByTheirLine(t *testing.T) {
	t.Parallel()
	text := example(t).description
	if _, err := mapping.Parse("site.map", text); err != nil {
		t.Fatalf("the example: %v", err)
	}
	lineOf := func(text, part string) int {
		before, _, _ := strings.Cut(text, part)
		return strings.Count(before, "\n") + 1
	}
	for _, test := range []struct{ old, instead, want string }{
		{"database = activityd\n", "", "site.map:1: want database = NAME before the first section"},
		{"[users]", "[members]", "site.map:LINE: there is no section members: want users, contacts, blocks or photos"},
		{"[blocks]\ntable      = site.bans\nuser_id    = owner\nblocked_id = banned\n", "", "there is no section [blocks]; a site that has none says table = none"},
		{"username    = nick", "nickname = nick", "site.map:LINE: users has no key nickname: want table, id, username, last_upload, where"},
		{"username    = nick", "username nick", "site.map:LINE: want [section], key = value, or a comment"},
		{"username    = nick", "username = nick\nusername = nick2", "username is there twice"},
		{"username    = nick", "username = CONCAT(a, b)", "site.map:LINE: username: want the name of one column"},
		{"table       = site.members", "table = site.members.x", "site.map:LINE: table: want the name of a table"},
		{"table       = site.members", "table = users", "site.map:LINE: the view activityd.users would have the name of this table"},
		{"table       = site.members\n", "", "users has no table"},
		{"id          = id\n", "", "users has no id"},
		{"where       = deleted_at IS NULL", "where = deleted_at > NOW()", "site.map:LINE: where: NOW changes while the row stays as it is, which no trigger sees"},
		{"where       = deleted_at IS NULL", "where = id IN (SELECT id FROM x)", "site.map:LINE: where: SELECT has no place in an expression over one row"},
		{"where       = deleted_at IS NULL", "where = (deleted_at IS NULL", "site.map:LINE: where: its parentheses do not match"},
		{"where       = deleted_at IS NULL", "where = )deleted_at IS NULL(", "site.map:LINE: where: its parentheses do not match"},
		{"where       = deleted_at IS NULL", "where = deleted_at IS NULL; DROP TABLE x", `site.map:LINE: where: cannot read "; DROP TABLE x"`},
		{"where       = deleted_at IS NULL", "where = m.deleted_at IS NULL", "site.map:LINE: where: name columns without their table"},
		{"where       = deleted_at IS NULL", "where = 'x", "site.map:LINE: where: cannot read \"'x\""},
		{"where       = deleted_at IS NULL", "where = deleted_at IS NULL -- gone", "site.map:LINE: where: has a comment"},
		{"where       = deleted_at IS NULL", "where = deleted_at IS NULL /*!80000 OR id */", "site.map:LINE: where: has a comment"},
		{"user_id    = owner", "user_id = user", "a column of that name is `user`, with its quotes"},
		{"where       = deleted_at IS NULL", "where = 1 = 1", "site.map:LINE: where: names no column"},
		{"where       = deleted_at IS NULL", "where =", "site.map:LINE: where: is empty"},
		{"date_type      = datetime", "date_type = timestamp", "site.map:LINE: date_type is timestamp: want seconds or milliseconds since 1970, or datetime"},
		{"public         = privacy = 4", "visibility = privacy", "photos: want either visibility, a column of activityd's words, or conditions"},
		{"table      = site.bans", "table = none", "with table = none there is nothing else to say of blocks"},
		{"[photos]", "[users]\ntable = site.a\nid = id\nlast_upload = x\n[photos]", "site.map:36: a second section users: only contacts and blocks may be in several tables"},
	} {
		damaged := strings.Replace(text, test.old, test.instead, 1)
		want := test.want
		if first, _, _ := strings.Cut(test.instead, "\n"); first != "" {
			want = strings.ReplaceAll(want, "LINE", fmt.Sprint(lineOf(damaged, first)))
		}
		if _, err := mapping.Parse("site.map", damaged); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q in place of %q: %v, want %q", test.instead, test.old, err, want)
		}
	}
	_, err := mapping.Parse("site.map", strings.NewReplacer("username    = nick", "nick", "date_type      = datetime", "date_type = x").Replace(text))
	if err == nil || strings.Count(err.Error(), "site.map:") != 2 {
		t.Errorf("two mistakes: %v", err)
	}
}

// TestWhatDoesNotFitTheTables: columns of the file that the tables do not have.
func TestWhatDoesNotFitTheTables(t *testing.T) {
	t.Parallel()
	s := example(t)
	g := newGround(t, s)
	fits := func(text string) error {
		m, err := mapping.Parse("site.map", g.named(text))
		must(t, err)
		return m.Fits(t.Context(), g.db)
	}
	for _, test := range []struct{ old, instead, want string }{
		{"site.members", "site.member", "there is no table " + g.database + "_site.member that this user can see"},
		{"= nick", "= nickname", "username: " + g.database + "_site.members has no column nickname"},
		{"where       = deleted_at IS NULL", "where = deleted IS NULL", "where: " + g.database + "_site.members has no column deleted"},
		{"date_type      = datetime", "date_type = seconds", ".created_at is datetime, which is no seconds: set date_type"},
		{"= asked_by", "= state_name", "has no column state_name"},
		{"owner_id       = owner", "owner_id = caption", ".caption is varchar(255): want a whole number"},
		{"friends        = privacy = 1\nfamily         = privacy = 2\nfriends_family = privacy = 3\npublic         = privacy = 4", "visibility = privacy", ".privacy is tinyint"},
		{"database = activityd", "database = elsewhere", "database is elsewhere, and --mysql-dsn names " + g.database},
	} {
		if err := fits(strings.Replace(s.description, test.old, test.instead, 1)); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "site.map:") {
			t.Errorf("%q in place of %q: %v, want %q", test.instead, test.old, err, test.want)
		}
	}
	run(t, g.db, "CREATE VIEW "+g.database+"_site.v AS SELECT id FROM "+g.database+"_site.members")
	if err := fits(strings.Replace(s.description, "site.members", "site.v", 1)); err == nil || !strings.Contains(err.Error(), "is a view: want the table beneath") {
		t.Errorf("a view: %v", err)
	}
	run(t, g.db, "CREATE VIEW contacts AS SELECT id FROM "+g.database+"_site.members", "CREATE TABLE photos (id INT)")
	if err := fits(s.description); err == nil || !strings.Contains(err.Error(), ".contacts is a view, where a table of copies is to be") || !strings.Contains(err.Error(), ".photos is a table, where a view is to be") {
		t.Errorf("what an earlier description left: %v", err)
	}
	run(t, g.db, "DROP VIEW contacts", "DROP TABLE photos")
	// The columns are missing. The remedy in the error mends it.
	err := fits(s.description)
	if err == nil || strings.Count(err.Error(), "has no column") != 3 {
		t.Fatalf("without the columns: %v", err)
	}
	if err := g.mapping.Apply(t.Context(), g.db); err == nil {
		t.Error("the views were made without the columns")
	}
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "  ALTER TABLE") {
			run(t, g.db, line)
		}
	}
	must(t, fits(s.description))
	// Another meaning of the numbers needs another column.
	if err := fits(strings.Replace(s.description, "privacy = 4", "privacy > 3", 1)); err == nil || !strings.Contains(err.Error(), "activityd_visibility was made of another description") {
		t.Errorf("after a change of the description: %v", err)
	}
}

// client runs statements by the client that comes with the server.
func client(t *testing.T, dsn, statements string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
	name, err := exec.LookPath("mariadb")
	if err != nil {
		name = "mysql"
	}
	cmd := exec.CommandContext(t.Context(), name, "--no-defaults", "--user="+cfg.User, "--socket="+cfg.Addr, cfg.DBName)
	cmd.Stdin = strings.NewReader(statements)
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// TestThePrintedTriggersAreWhatIsApplied: the client makes the same of the printed text.
func TestThePrintedTriggersAreWhatIsApplied(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	g := newGroundOn(t, example(t), dsn)
	g.adopt(t)
	before := g.triggers(t)
	if n, err := g.mapping.Triggers().Remove(t.Context(), g.db); err != nil || n != 10 || len(g.triggers(t)) > 0 {
		t.Errorf("removed %d triggers, %v, left %q", n, err, g.triggers(t))
	}
	var script bytes.Buffer
	must(t, g.mapping.PrintTriggers(&script))
	client(t, dsn, script.String())
	if diff := cmp.Diff(before, g.triggers(t)); diff != "" {
		t.Errorf("(-activityd +client):\n%s", diff)
	}
}

// triggers are the triggers of the site's tables, word for word.
func (g *ground) triggers(t *testing.T) []string {
	t.Helper()
	return column(t, g.db, "SELECT CONCAT_WS(' ', trigger_name, action_timing, event_manipulation, event_object_table, action_statement)"+
		" FROM information_schema.triggers WHERE trigger_schema = '"+g.database+"_site' ORDER BY trigger_name")
}

// TestTwoRowsOfOneFriendship: the second row is read no older than the lock. Of two
// transactions that each end a row, one waits or is rolled back, and the pair goes.
func TestTwoRowsOfOneFriendship(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	run(t, g.db, g.named("INSERT INTO site.friendships (asked_by, asked, state) VALUES (1, 2, 1), (2, 1, 1)"))
	conn, err := g.db.Conn(t.Context())
	must(t, err)
	defer func() { _ = conn.Close() }()
	exec := func(statement string) {
		_, err := conn.ExecContext(t.Context(), g.named(statement))
		must(t, err)
	}
	exec("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	exec("START TRANSACTION WITH CONSISTENT SNAPSHOT")
	run(t, g.db, g.named("DELETE FROM site.friendships WHERE asked_by = 2"))
	if got := column(t, g.db, "SELECT COUNT(*) FROM contacts")[0]; got != "2" {
		t.Errorf("with one row left there are %s contacts", got)
	}
	exec("DELETE FROM site.friendships WHERE asked_by = 1") // its snapshot has the second row still
	exec("COMMIT")
	if got := column(t, g.db, "SELECT COUNT(*) FROM contacts")[0]; got != "0" {
		t.Errorf("with no row left there are %s contacts", got)
	}
}

// TestTriggersThatCannotBeReplacedStay: a failure is found before the first of them is dropped.
func TestTriggersThatCannotBeReplacedStay(t *testing.T) {
	t.Parallel()
	g := newGround(t, sites["contacts in two tables, blocks in both directions, states, signed ids, milliseconds"])
	g.adopt(t)
	before, triggers := g.triggers(t), g.mapping.Triggers()
	triggers.List[len(triggers.List)-1].Body = "BEGIN no statement; END"
	if err := triggers.Install(t.Context(), g.db); err == nil {
		t.Errorf("installed with %v", err)
	}
	if diff := cmp.Diff(before, g.triggers(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
