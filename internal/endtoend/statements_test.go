//go:build unix

package endtoend_test

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// unindexed maps the beginnings of statements to reasons. A statement with a listed beginning may read a
// table without one of its indexes, or all entries of an index.
var unindexed = map[string]string{
	"SELECT queue FROM paused_queues":                                         "a row for each queue that is paused",
	"SELECT DISTINCT state, queue FROM tasks":                                 "where there are tasks, from an index alone: where there are many entries of one, servers jump over them",
	"SELECT number FROM push_events FORCE":                                    "the events to be forgotten: where there are none, servers take a scan for a range",
	"SELECT id, queue, type, subject,":                                        "the tasks that an operator lists, in the order of their ids, up to a limit",
	"SELECT member_id FROM broadcast_members LIMIT 1":                         "whether there are broadcast members: the first entry of the key",
	"SELECT COUNT(*) FROM users WHERE id >= 1 AND id <= 18446744073709551615": "all members, for the progress of verify",
}

// TestEveryStatementUsesAnIndex runs the whole program, and checks the plan of each statement in the server's
// log, as the program sent it. The site's tables are filled and the queue is nearly empty: this case is the
// usual and the dangerous one.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	g := groundOn(t, 3, server.DSN(servertest.Database), servertest.Redis(t))
	user, statements := servertest.LogUser(t, g.db)
	dsn := as(t, user, g.dsn)
	tn := newTown(t, g, seedFor(t), 2000)

	settings := append(os.Environ(), "ACTIVITYD_MYSQL_DSN="+dsn, "ACTIVITYD_REDIS_URL="+g.redis.URL(), "ACTIVITYD_NEED=3")
	call(t, settings, "backfill")
	p := serving(t, "serve", dsn, g.redis.URL(), "--need=3").mustStart(t)
	must(t, newActor(tn.site, 1, 1, tn.fans).act(t.Context(), 150))
	for _, viewer := range []member.ID{1, 2, hermit} {
		_, err := ask(t.Context(), http.DefaultClient, p, viewer, 3)
		must(t, err)
	}
	for range 2 { // the second time it is replayed
		var answer any
		must(t, post(t.Context(), http.DefaultClient, p, "/v1/tasks", "same", map[string]string{"type": "upload", "user_id": "50"}, &answer))
	}
	for _, line := range []string{"enqueue upload 50", "tasks list", "tasks stats", "tasks pause aside", "tasks resume aside"} {
		call(t, settings, strings.Fields(line)...)
	}
	for _, line := range []string{"once nightly -- true", "once nightly -- true", "once hourly -- true", "once show", "once forget nightly"} {
		call(t, settings, strings.Fields(line)...)
	}
	eventually(t, "all tasks are done", func() bool { c := g.count(t); return c.Waiting+c.Scheduled+c.Running == 0 })
	call(t, settings, "verify")
	p.finish(t)

	g.exec(t, `INSERT INTO tasks (type, subject) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 30) SELECT 'upload', i FROM n`)
	g.exec(t, `INSERT INTO tasks (state, type, subject, attempts, run_at)
		WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 90)
		SELECT ELT(1 + i % 3, 'scheduled', 'dead', 'running'), 'upload', i, 1, 99999999999999 FROM n`)
	g.exec(t, `INSERT INTO held_keys WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 30) SELECT 'default', i, i FROM n`)
	g.exec(t, `INSERT INTO idempotency_keys (key_hash, batch_hash) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)
		SELECT UNHEX(SHA2(i, 256)), '' FROM n`)
	checkPlans(t, dsn, statements())
}

// as returns dsn for another user.
func as(t *testing.T, user, dsn string) string {
	t.Helper()
	cfg, err := driver.ParseDSN(dsn)
	must(t, err)
	cfg.User, cfg.Passwd = user, ""
	return cfg.FormatDSN()
}

func call(t *testing.T, environment []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), activityd(t), args...)
	cmd.Env = environment
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("activityd %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

var (
	tables  = regexp.MustCompile(`\b(tasks|held_keys|idempotency_keys|paused_queues|once_keys|push_devices|push_settings|push_mutes|push_events|push_receipts|broadcast_members|users|contacts|blocks|photos)\b`)
	values  = regexp.MustCompile(`_?\w*'(?:[^'\\]|\\.|'')*'|\b\d+\b`)
	locking = regexp.MustCompile(`^UPDATE tasks |^DELETE .*\btasks\b|(?s)\bFROM tasks\b.*\bFOR UPDATE\b`)
	lists   = regexp.MustCompile(`[?](, ?[?])+|\([?]\)(,\([?]\))+|( OR [^()]*?[?])+`)
)

// checkPlans explains a statement of each form.
func checkPlans(t *testing.T, dsn string, statements []string) {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(1))
	must(t, err)
	defer func() { _ = db.Close() }()
	forms := make(map[string]string)
	for _, statement := range statements {
		if tables.MatchString(statement) && !strings.Contains(statement, "information_schema") {
			forms[lists.ReplaceAllString(values.ReplaceAllString(statement, "?"), "?")] = statement
		}
	}
	beginnings := slices.Sorted(maps.Keys(unindexed))
	for form, statement := range forms {
		// A locking statement names its index, whatever its plan is today: a scan would wait for rows that
		// other transactions have locked.
		if locking.MatchString(form) && !strings.Contains(form, "FORCE INDEX") && !strings.HasSuffix(form, " WHERE id = ?") {
			t.Errorf("locks tasks and names no index: %s", statement)
		}
		for _, step := range servertest.Explain(t, db, statement) {
			// The few queues that are paused are read whole.
			excused := step.Table == "paused_queues" || slices.ContainsFunc(beginnings, func(text string) bool { return strings.HasPrefix(statement, text) })
			if step.Stored() && (step.Key == "" || step.Scans()) && !excused {
				t.Errorf("%+v, in\n%s", step, statement)
			}
		}
	}
	t.Logf("%d forms of %d statements", len(forms), len(statements))
	for _, form := range []string{"SELECT id, type, subject", "DELETE tasks", "INSERT INTO tasks", "UPDATE tasks", "INSERT IGNORE INTO held_keys", "DELETE held_keys", "SELECT type, COUNT(*), MIN", "(SELECT ?, user_id", "SELECT batch_hash", "UPDATE once_keys", "INSERT INTO once_keys"} {
		if !slices.ContainsFunc(statements, func(s string) bool { return strings.HasPrefix(values.ReplaceAllString(s, "?"), form) }) {
			t.Errorf("the program sent nothing that begins with %q", form)
		}
	}
}
