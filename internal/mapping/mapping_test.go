package mapping_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// A mistake in the description is named by its line.
func TestMistakesAreNamedByTheirLine(t *testing.T) {
	t.Parallel()
	text := example(t).description
	if _, err := mapping.Parse("site.map", text); err != nil {
		t.Fatalf("the example: %v", err)
	}
	const where = "where       = deleted_at IS NULL"
	for _, test := range []struct{ old, instead, want string }{
		{"database = activityd\n", "", "site.map:1: want database = NAME before the first section"},
		{"[users]", "[members]", "site.map:LINE: there is no section members: want users, contacts, blocks or photos"},
		{"[blocks]\ntable      = site.bans\nuser_id    = owner\nblocked_id = banned\n", "", "there is no section [blocks]"},
		{"username    = nick", "nickname = nick", "site.map:LINE: users has no key nickname: want table, id, username, last_upload, where"},
		{"username    = nick", "username nick", "site.map:LINE: want [section], key = value, or a comment"},
		{"username    = nick", "username = nick\nusername = nick2", "username is there twice"},
		{"username    = nick", "username = CONCAT(a, b)", "site.map:LINE: username: want the name of one column"},
		{"table       = site.members", "table = site.members.x", "site.map:LINE: table: want the name of a table"},
		{"table       = site.members", "table = users", "site.map:LINE: table: the view activityd.users would have the name of this table"},
		{"id          = id\n", "", "users has no id"},
		{where, "where = deleted_at > NOW()", "site.map:LINE: where: NOW has no place in an expression over one row"},
		{where, "where = id IN (SELECT id FROM x)", "site.map:LINE: where: SELECT has no place in an expression over one row"},
		{where, "where = (deleted_at IS NULL", "site.map:LINE: where: its parentheses do not match"},
		{where, "where = )deleted_at IS NULL(", "site.map:LINE: where: its parentheses do not match"},
		{where, "where = deleted_at IS NULL; DROP TABLE x", `site.map:LINE: where: cannot read "; DROP TABLE x"`},
		{where, "where = m.deleted_at IS NULL", `site.map:LINE: where: cannot read ".deleted_at IS NULL"`},
		{where, "where = deleted_at IS NULL -- gone", "site.map:LINE: where: has a comment"},
		{where, "where = deleted_at IS NULL /*!80000 OR id */", "site.map:LINE: where: has a comment"},
		{"user_id    = owner", "user_id = user", "a column of that name is `user`, with its quotes"},
		{where, "where =", "site.map:LINE: where: is empty"},
		{"date_type      = datetime", "date_type = timestamp", "site.map:LINE: date_type is timestamp: want seconds or milliseconds"},
		{"public         = privacy = 4", "visibility = privacy", "photos: want either visibility, a column of activityd's words, or conditions"},
		{"table      = site.bans", "table = none", "with table = none there is nothing else to say of blocks"},
		{"[photos]", "[users]\ntable = site.a\nid = id\nlast_upload = x\n[photos]", "site.map:36: a second section users"},
	} {
		damaged := strings.Replace(text, test.old, test.instead, 1)
		first, _, _ := strings.Cut(test.instead, "\n")
		before, _, _ := strings.Cut(damaged, first)
		want := strings.ReplaceAll(test.want, "LINE", fmt.Sprint(strings.Count(before, "\n")+1))
		if _, err := mapping.Parse("site.map", damaged); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q in place of %q: %v, want %q", test.instead, test.old, err, want)
		}
	}
	_, err := mapping.Parse("site.map", strings.NewReplacer("username    = nick", "nick", "date_type      = datetime", "date_type = x").Replace(text))
	if err == nil || strings.Count(err.Error(), "site.map:") != 2 {
		t.Errorf("two mistakes: %v", err)
	}
}

// What does not fit the tables is named by its line, too. The remedies mend what is missing.
func TestWhatDoesNotFitTheTables(t *testing.T) {
	t.Parallel()
	s := example(t)
	g := newGround(t, s)
	fits := func(text string) error {
		m, err := mapping.Parse("site.map", g.named(text))
		must(t, err)
		return m.Fits(t.Context(), g.db)
	}
	run(t, g.db, "CREATE VIEW "+g.database+"_site.v AS SELECT id FROM "+g.database+"_site.members")
	const byClass = "friends        = privacy = 1\nfamily         = privacy = 2\nfriends_family = privacy = 3\npublic         = privacy = 4"
	for _, test := range []struct{ old, instead, want string }{
		{"site.members", "site.member", "there is no table " + g.database + "_site.member that this user can see"},
		{"site.members", "site.v", "is a view: want the table beneath"},
		{"= nick", "= nickname", "username: " + g.database + "_site.members has no column nickname"},
		{"where       = deleted_at IS NULL", "where = deleted IS NULL", "where: " + g.database + "_site.members has no column deleted"},
		{"date_type      = datetime", "date_type = seconds", ".created_at is datetime: want a whole number of seconds"},
		{"owner_id       = owner", "owner_id = caption", ".caption is varchar(255): want a whole number"},
		{byClass, "visibility = privacy", ".privacy is tinyint"},
		{"privacy = 4", "privacy = 'public'", ": MySQL takes 'public' for 0"},
		{"privacy = 4", "privacy IN (4, 'everyone')", ": MySQL takes 'everyone' for 0"},
		{"database = activityd", "database = elsewhere", "database is elsewhere, and --mysql-dsn names " + g.database},
	} {
		err := fits(strings.Replace(s.description, test.old, test.instead, 1))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "site.map:") {
			t.Errorf("%q in place of %q: %v, want %q", test.instead, test.old, err, test.want)
		}
	}
	run(t, g.db, "CREATE VIEW contacts AS SELECT id FROM "+g.database+"_site.members")
	if err := fits(s.description); err == nil || !strings.Contains(err.Error(), ".contacts is a view, where a table of copies is to be") {
		t.Errorf("what an earlier description left: %v", err)
	}
	run(t, g.db, "DROP VIEW contacts", "CREATE TABLE contacts (id INT)")
	first := strings.Index(s.description, "[contacts]")
	second := first + 1 + strings.Index(s.description[first+1:], "[contacts]")
	if err := fits(s.description[:first] + s.description[second:]); err == nil || !strings.Contains(err.Error(), ".contacts is a table, where a view is to be") {
		t.Errorf("what a description with more sections left: %v", err)
	}
	run(t, g.db, "DROP TABLE contacts")
	err := g.mapping.Apply(t.Context(), g.db)
	if err == nil || strings.Count(err.Error(), "has no column") != 3 {
		t.Fatalf("without the columns: %v", err)
	}
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "  ALTER TABLE") {
			run(t, g.db, line)
		}
	}
	must(t, fits(s.description))
	if err := fits(strings.Replace(s.description, "privacy = 4", "privacy > 3", 1)); err == nil || !strings.Contains(err.Error(), "activityd_visibility was made of another description") {
		t.Errorf("after a change of the description: %v", err)
	}
}

// The server's own client makes the same triggers of the printed text.
func TestThePrintedTriggersAreWhatIsApplied(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	g := newGroundOn(t, example(t), dsn)
	g.adopt(t)
	triggers := func() []string {
		return column(t, g.db, "SELECT CONCAT_WS(' ', trigger_name, action_timing, event_manipulation, event_object_table, action_statement)"+
			" FROM information_schema.triggers WHERE trigger_schema = '"+g.database+"_site' ORDER BY trigger_name")
	}
	before := triggers()
	if n, err := g.mapping.Triggers().Remove(t.Context(), g.db); err != nil || n != 10 || len(triggers()) > 0 {
		t.Errorf("removed %d triggers, %v, left %q", n, err, triggers())
	}
	if found := g.findings(t); len(found) != 1 || found[0].Wrong || !strings.Contains(found[0].What, "has no trigger activityd_photos_before_update") {
		t.Errorf("without triggers: found %v", found)
	}
	var script bytes.Buffer
	must(t, g.mapping.PrintTriggers(&script))
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
	name, err := exec.LookPath("mariadb")
	if err != nil {
		name = "mysql"
	}
	client := exec.CommandContext(t.Context(), name, "--no-defaults", "--user="+cfg.User, "--socket="+cfg.Addr, cfg.DBName)
	client.Stdin = &script
	if out, err := client.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	if diff := cmp.Diff(before, triggers()); diff != "" {
		t.Errorf("(-activityd +client):\n%s", diff)
	}
}

// The second row of a friendship is read no older than the lock: of two transactions that each end a row, the later
// ends the friendship.
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
	g.contacts(t, 2)
	exec("DELETE FROM site.friendships WHERE asked_by = 1") // its snapshot has the second row still
	exec("COMMIT")
	g.contacts(t, 0)
}

// contacts fails the test unless there are so many contacts.
func (g *ground) contacts(t *testing.T, want int) {
	t.Helper()
	if got := column(t, g.db, "SELECT COUNT(*) FROM contacts")[0]; got != fmt.Sprint(want) {
		t.Errorf("there are %s contacts, want %d", got, want)
	}
}

// Members become friends at once without a deadlock, each pair by a statement of its own, at the isolation level that
// is the servers' default, and locks gaps.
func TestFriendshipsOfOthersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	const writers, each = 8, 40
	var members atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			conn, err := g.db.Conn(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, err = conn.ExecContext(context.Background(), "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
			for range each {
				n := members.Add(2)
				_, failed := conn.ExecContext(context.Background(), g.named(fmt.Sprintf("INSERT INTO site.friendships (asked_by, asked, state) VALUES (%d, %d, 1)", n, n+1)))
				err = errors.Join(err, failed)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	g.contacts(t, 2*writers*each)
}

// Letters of both cases are equal in a column's collation, and a condition tells them apart.
func TestAConditionThatTellsEqualTextApart(t *testing.T) {
	t.Parallel()
	s := example(t)
	s.tables = strings.Replace(s.tables, "state     TINYINT NOT NULL DEFAULT 0", "state VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", 1)
	s.description = strings.ReplaceAll(s.description, "state = 1", "HEX(state) = HEX('on')")
	g := newGround(t, s)
	g.adopt(t)
	run(t, g.db, g.named("INSERT INTO site.friendships (asked_by, asked, state) VALUES (1, 2, 'ON')"), g.named("UPDATE site.friendships SET state = 'on'"))
	g.contacts(t, 2)
}

// The IGNORE of a statement does not hold for the statements of the trigger, which meet a pair that is there.
func TestTheOtherRowIsInsertedWithIgnore(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	insert := g.named("INSERT IGNORE INTO site.friendships (state, is_family, asked_by, asked) VALUES ")
	run(t, g.db, insert+"(1, 0, 1, 2)")
	g.tasks(t)
	run(t, g.db, insert+"(1, 1, 2, 1)", insert+"(1, 0, 2, 1)", "DELETE FROM contacts WHERE NOT is_family")
	g.contacts(t, 2)
	if got := g.tasks(t); len(got) > 0 {
		t.Errorf("the tasks are %q", got)
	}
}
