package stream_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/stream"
)

// manual returns the section of docs/push.md about the ways in.
func manual(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/push.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "\n## Three ways in\n")
	if !found {
		t.Fatal("docs/push.md has no section about the ways in")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// The commands of the manual are moved, and its statements are understood.
func TestTheExamplesOfTheManual(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := regexp.MustCompile(`XADD `+stream.Key+` '\*' `+stream.Field+` '([^']*)'`).FindAllStringSubmatch(manual(t), -1)
	for _, command := range added {
		b.add("task", command[1])
	}
	if len(added) < 3 {
		t.Errorf("the manual has %d commands", len(added))
	}
	b.start()
	b.queued([]string{"notify:98765", "notify:98765", "upload:98765"})

	b.exec("DELETE FROM tasks")
	inserted := regexp.MustCompile(`(?s)INSERT INTO tasks .*?;`).FindAllString(manual(t), -1)
	for _, statement := range inserted {
		b.exec(statement)
	}
	if len(inserted) < 2 {
		t.Errorf("the manual has %d statements", len(inserted))
	}
	rows, err := b.db.QueryContext(t.Context(), "SELECT args FROM tasks WHERE type = 'notify'")
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var args []byte
		b.must(rows.Scan(&args))
		if _, err := push.ParseEvent(98765, args); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	b.must(rows.Err())
}
