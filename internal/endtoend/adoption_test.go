package endtoend_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/queue"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// adoptionSQL returns the SQL statements of docs/setup.md by block.
func adoptionSQL(t *testing.T) (blocks [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/setup.md")
	must(t, err)
	_, section, found := strings.Cut(string(page), "\n## Reporting changes to activityd\n")
	if !found {
		t.Fatal("docs/setup.md has no such section")
	}
	for _, block := range sqlBlock.FindAllStringSubmatch(section, -1) {
		var statements []string
		for text := range strings.SplitSeq(block[1], ";") {
			if text = strings.TrimSpace(text); text != "" {
				statements = append(statements, text)
			}
		}
		blocks = append(blocks, statements)
	}
	return blocks
}

func blockWith(t *testing.T, words string) []string {
	t.Helper()
	found := slices.DeleteFunc(adoptionSQL(t), func(block []string) bool {
		return !strings.Contains(strings.Join(block, ";"), words)
	})
	if len(found) != 1 {
		t.Fatalf("%d blocks of docs/setup.md hold %q", len(found), words)
	}
	return found[0]
}

// TestTheSQLOfTheDocs has a site run all SQL of that section, in its order, with the rights of docs/setup.md and all
// rights to its own tables, whose photos are older than its last_upload. The site can write no other column of tasks,
// and a worker with activityd's rights does the tasks.
func TestTheSQLOfTheDocs(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3)
	g.exec(t, "INSERT INTO users (id, username) VALUES (98765, 'ada'), (12345, 'ben')")
	g.exec(t, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (98765, 'public', 1000), (98765, 'private', 2000)")
	producer := *g
	producer.db = openMySQL(t, g.asUser(t, "site", "users", "contacts", "photos"))
	for _, block := range adoptionSQL(t) {
		must(t, producer.onOneConnection(t.Context(), block))
	}
	var last uint64
	must(t, g.db.QueryRowContext(t.Context(), "SELECT last_upload FROM users WHERE id = 98765").Scan(&last))
	if last != 1363665432 {
		t.Errorf("the last upload is %d", last)
	}
	var got []string
	records, err := g.queue.List(t.Context(), queue.Filter{}, 100)
	must(t, err)
	for _, r := range records {
		words := []string{r.Kind, fmt.Sprint(r.Key), string(r.State)}
		if r.Priority != 0 {
			words = append(words, "priority")
		}
		if !r.ExpiresAt.IsZero() && r.ExpiresAt.After(r.Created) {
			words = append(words, "expires")
		}
		got = append(got, strings.Join(words, " "))
	}
	want := []string{
		"add_contact 12345 waiting", "remove_contact 12345 waiting", "upload 98765 waiting", "upload 98765 waiting", "refill 98765 waiting", "upload 98765 waiting",
		"refill 98765 waiting",
		"upload 98765 waiting", "upload 98765 waiting priority", "upload 98765 waiting expires",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	// Nobody is behind: the query for members who are finds none.
	rows, err := g.db.QueryContext(t.Context(), blockWith(t, "HAVING newest")[0])
	must(t, err)
	defer func() { _ = rows.Close() }()
	if rows.Next() || rows.Err() != nil {
		t.Errorf("somebody's last upload is behind, %v", rows.Err())
	}
	for _, values := range []string{
		"(id, type, subject) VALUES (18446744073709551614, 'upload', 1)", "(attempts, type, subject) VALUES (65535, 'upload', 1)",
		"(dedupe_key, type, subject) VALUES ('upload:1', 'upload', 1)",
		"(lost, type, subject) VALUES (1, 'upload', 1)", "(last_error, type, subject) VALUES ('x', 'upload', 1)",
		"(created_at, type, subject) VALUES (0, 'upload', 1)",
	} {
		if _, err := producer.db.ExecContext(t.Context(), "INSERT INTO tasks "+values); err == nil || !strings.Contains(err.Error(), "denied") {
			t.Errorf("INSERT INTO tasks %s: %v, want it denied", values, err)
		}
	}
	g.exec(t, "UPDATE tasks SET run_at = 0, state = 'waiting'")
	worker := *g
	worker.dsn = g.asUser(t, "activityd")
	worker.started(t, "worker")
	g.awaitIdle(t)
}

var grantInRights = regexp.MustCompile(`(?m)^GRANT (.+) ON site\.(\w+) +TO '(\w+)'@'%';$`)

// asUser returns the DSN of a user who has the rights that docs/setup.md names for it, and may do all to tables of its
// own.
func (g *ground) asUser(t *testing.T, name string, own ...string) (dsn string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/setup.md")
	must(t, err)
	cfg, err := mysql.ParseDSN(g.dsn)
	must(t, err)
	cfg.User, cfg.Passwd = name+"_"+cfg.DBName, "secret"
	user := cfg.User + "@localhost"
	g.exec(t, "CREATE USER "+user+" IDENTIFIED BY 'secret'")
	t.Cleanup(func() { _, _ = g.db.ExecContext(context.Background(), "DROP USER "+user) })
	grants := 0
	for _, grant := range grantInRights.FindAllStringSubmatch(string(page), -1) {
		if grant[3] == name {
			grants++
			g.exec(t, "GRANT "+grant[1]+" ON "+cfg.DBName+"."+grant[2]+" TO "+user)
		}
	}
	if grants == 0 {
		t.Fatalf("docs/setup.md grants nothing to %s", name)
	}
	for _, table := range own {
		g.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+cfg.DBName+"."+table+" TO "+user)
	}
	return cfg.FormatDSN()
}
