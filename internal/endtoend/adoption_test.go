package endtoend_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/tasks"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// adoptionSQL are the statements of docs/adoption.md, one block of them each.
func adoptionSQL(t *testing.T) (blocks [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/adoption.md")
	must(t, err)
	for _, block := range sqlBlock.FindAllStringSubmatch(string(page), -1) {
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

// blockWith is the one block of docs/adoption.md that holds the words.
func blockWith(t *testing.T, words string) []string {
	t.Helper()
	found := slices.DeleteFunc(adoptionSQL(t), func(block []string) bool {
		return !strings.Contains(strings.Join(block, ";"), words)
	})
	if len(found) != 1 {
		t.Fatalf("%d blocks of docs/adoption.md hold %q", len(found), words)
	}
	return found[0]
}

// execOn runs statements on one connection, as a person with a client does.
func (g *ground) execOn(t *testing.T, statements []string) {
	t.Helper()
	conn, err := g.db.Conn(t.Context())
	must(t, err)
	defer func() { _ = conn.Close() }()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// TestTheSQLOfTheDocs runs all SQL of docs/adoption.md, in its order, on a site
// whose photos are older than its last_upload.
func TestTheSQLOfTheDocs(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3)
	g.exec(t, "INSERT INTO users (id, username) VALUES (98765, 'ada'), (12345, 'ben')")
	g.exec(t, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (98765, 'public', 1000), (98765, 'private', 2000)")
	for _, block := range adoptionSQL(t) {
		g.execOn(t, block)
	}
	var last uint64
	must(t, g.db.QueryRowContext(t.Context(), "SELECT last_upload FROM users WHERE id = 98765").Scan(&last))
	if last != 1363665432 {
		t.Errorf("the last upload is %d", last)
	}
	var got []string
	records, err := g.queue.List(t.Context(), tasks.Filter{}, 100)
	must(t, err)
	for _, r := range records {
		words := []string{string(r.Type), r.Subject.String(), string(r.State)}
		if r.Priority != 0 {
			words = append(words, "priority")
		}
		if !r.ExpiresAt.IsZero() && r.ExpiresAt.After(r.Created) {
			words = append(words, "expires")
		}
		if !r.RunAt.IsZero() && r.RunAt.After(r.Created) {
			words = append(words, "later")
		}
		got = append(got, strings.Join(words, " "))
	}
	want := []string{
		"add_contact 12345 waiting", "remove_contact 12345 waiting", "upload 98765 waiting", "refill 98765 waiting", "upload 98765 waiting",
		"upload 98765 scheduled later", "upload 98765 waiting priority", "upload 98765 waiting expires",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	// Nobody is behind: the query that looks for such finds none.
	rows, err := g.db.QueryContext(t.Context(), blockWith(t, "HAVING newest")[0])
	must(t, err)
	defer func() { _ = rows.Close() }()
	if rows.Next() || rows.Err() != nil {
		t.Errorf("somebody's last upload is behind, %v", rows.Err())
	}
	g.started(t, "worker")
	g.exec(t, "UPDATE tasks SET due_at = 1 WHERE state = 'scheduled'")
	g.awaitIdle(t)
}
