package schema_test

import (
	"database/sql"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestNothingOfTheFilesIsLeftOut: the client of the server makes the same of schema.sql
// and triggers.sql as this program.
func TestNothingOfTheFilesIsLeftOut(t *testing.T) {
	t.Parallel()
	var triggers []string
	for _, trigger := range standard.List {
		triggers = append(triggers, trigger.Statement())
	}
	for name, file := range map[string]struct {
		text       string
		statements []string
		rest       *regexp.Regexp
	}{
		"schema.sql":   {activityd.Schema, schema.TableStatements(), regexp.MustCompile(`^(--.*)?$`)},
		"triggers.sql": {activityd.Triggers, triggers, regexp.MustCompile(`^(--.*|DELIMITER (//|;)|DROP TRIGGER IF EXISTS \w+//|SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';|//)?$`)},
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
}

// described lists the tables and their columns.
func described(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return slices.Concat(
		column(t, db, "SELECT CONCAT_WS(' ', table_name, table_comment) FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"),
		column(t, db, "SELECT CONCAT_WS(' ', table_name, column_name, column_type) FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1"))
}

// TestApplyMayBeCalledAgain: by several hosts at once, and beside a transaction of the site's.
func TestApplyMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	want := described(t, db)
	run(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada')", "DROP TABLE blocks, tasks")
	undone(t, db, func(tx *sql.Tx) {
		run(t, tx, "UPDATE users SET username = 'ben'")
		ended := make(chan error)
		for range 4 {
			host := open(t, dsn)
			go func() { ended <- schema.Apply(t.Context(), host) }()
		}
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	if got := described(t, db); !slices.Equal(got, want) {
		t.Errorf("the tables are %q, want %q", got, want)
	}
	if got := column(t, db, "SELECT username FROM users"); !slices.Equal(got, []string{"ada"}) {
		t.Errorf("users %q, want those of before", got)
	}
}

// TestAnotherVersionIsRefused: nothing is changed, and the remedy works.
func TestAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]string{
		"activityd schema 6, compatible since 4": "start anew",
		"activityd schema 1":                     "start anew",
		"activityd schema 999":                   "this activityd is older than the schema: run a newer one",
		"jobs of the site":                       "give activityd another database",
	} {
		db := servertest.MySQL(t)
		run(t, db, "ALTER TABLE tasks DROP COLUMN args, COMMENT = '"+comment+"'", "DROP TABLE once_keys")
		before := described(t, db)
		if err := schema.Apply(t.Context(), db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: applied: %v", comment, err)
		}
		if err := schema.Compatible(t.Context(), db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: compatible: %v", comment, err)
		}
		findings := check(t, db)
		if len(findings) != 1 || !findings[0].Wrong || !strings.Contains(findings[0].Do, want) {
			t.Fatalf("%s: found %v", comment, findings)
		}
		if got := described(t, db); !slices.Equal(got, before) {
			t.Errorf("%s: the tables are %q, want %q", comment, got, before)
		}
		drop := regexp.MustCompile(`DROP TABLE [^;]+`).FindString(findings[0].Do)
		if (drop != "") != (want == "start anew") {
			t.Errorf("%s: the remedy is %s", comment, findings[0].Do)
		}
		if drop == "" {
			continue
		}
		run(t, db, "INSERT INTO users (id) VALUES (1)", drop)
		if err := schema.Apply(t.Context(), db); err != nil {
			t.Error(err)
		}
		if findings := check(t, db); len(findings) > 0 || column(t, db, "SELECT COUNT(*) FROM users")[0] != "1" {
			t.Errorf("%s: started anew: %v", comment, findings)
		}
	}
}

var insertRight = regexp.MustCompile(`GRANT INSERT \(([^)]+)\) ON site\.tasks`)

// notForProducers are the columns of tasks that the queue alone writes.
var notForProducers = []string{"id", "attempts", "lost", "last_error", "created_at", "dedupe_key", "state", "started_at", "lease"}

// TestTheRightsOfThePage: docs/setup.md has the rights to all tables, and of producers to each column of theirs,
// and no page repeats them.
func TestTheRightsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/setup.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range schema.Tables() {
		rights := "SELECT, INSERT, UPDATE, DELETE"
		if slices.Contains([]string{"users", "contacts", "blocks", "photos"}, table) { // the site's
			rights = "SELECT"
		}
		if n := len(regexp.MustCompile(`(?m)^GRANT `+rights+` ON site\.`+table+` +TO 'activityd'`).FindAllString(string(page), -1)); n != 1 {
			t.Errorf("docs/setup.md grants %s on %s %d times", rights, table, n)
		}
	}
	want := slices.DeleteFunc(schema.Columns("tasks"), func(name string) bool { return slices.Contains(notForProducers, name) })
	for _, of := range []string{"../../docs/setup.md", "../../docs/queue.md", "../../docs/push.md"} {
		text, err := os.ReadFile(of)
		if err != nil {
			t.Fatal(err)
		}
		lists := regexp.MustCompile(`INSERT \([a-z_, ]+\)\s+ON`).FindAllString(string(text), -1)
		if isSetup := strings.HasSuffix(of, "setup.md"); (len(lists) == 1) != isSetup {
			t.Errorf("%s has the lists of columns %q: docs/setup.md alone has one", of, lists)
		}
	}
	found := insertRight.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("docs/setup.md grants producers nothing")
	}
	got := strings.Split(found[1], ", ")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/setup.md grants producers %q, want %q", got, want)
	}
}
