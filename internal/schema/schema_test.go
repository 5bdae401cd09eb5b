package schema_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestNothingOfTheFilesIsLeftOut: what the client of the server makes of schema.sql
// and triggers.sql is what this program makes of them.
func TestNothingOfTheFilesIsLeftOut(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`^(--.*)?$`)
	ofTriggers := regexp.MustCompile(`^(--.*|DELIMITER (//|;)|DROP TRIGGER IF EXISTS \w+//|SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';|//)?$`)
	for name, file := range map[string]struct {
		text       string
		statements []string
		rest       *regexp.Regexp
	}{
		"schema.sql":   {activityd.Schema, schema.TableStatements(activityd.Schema), comment},
		"triggers.sql": {activityd.Triggers, schema.TriggerStatements(), ofTriggers},
	} {
		text := file.text
		for _, statement := range file.statements {
			if strings.Count(text, statement) != 1 {
				t.Errorf("%s: %d times: %s", name, strings.Count(text, statement), statement)
			}
			text = strings.Replace(strings.Replace(text, statement+";\n", "", 1), statement+"//\n", "", 1)
		}
		for line := range strings.Lines(text) {
			if !file.rest.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: in no statement: %s", name, line)
			}
		}
	}
	want := []string{
		"users", "contacts", "blocks", "photos", "tasks", "task_leases", "parked_tasks", "paused_queues", "task_keys", "broadcast_members", "once_keys",
		"push_devices", "push_settings", "push_mutes", "push_events", "push_receipts", "push_runs",
	}
	if got := schema.Tables(); !slices.Equal(got, want) {
		t.Errorf("tables %q, want %q", got, want)
	}
}

func TestApplyMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	run(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada')", "DROP TABLE blocks")
	if err := schema.Apply(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if findings := check(t, db); len(findings) > 0 {
		t.Errorf("found %+v", findings)
	}
	if got := column(t, db, "SELECT username FROM users"); !slices.Equal(got, []string{"ada"}) {
		t.Errorf("users %q, want those of before", got)
	}
}
