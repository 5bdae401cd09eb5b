package main

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

var (
	markedSQL   = regexp.MustCompile("(?s)```sql (\\w+)\n(.*?)```")
	lineComment = regexp.MustCompile(`(?m)^--.*$`)
)

// pageSQL are the statements of the blocks of a page that have a name, by it.
func pageSQL(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	must(t, err)
	blocks := make(map[string][]string)
	for _, block := range markedSQL.FindAllStringSubmatch(string(text), -1) {
		blocks[block[1]] = append(blocks[block[1]], statements(block[2])...)
	}
	return blocks
}

// statements returns the statements of a text, without comments.
func statements(text string) (list []string) {
	for statement := range strings.SplitSeq(lineComment.ReplaceAllString(text, ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			list = append(list, statement)
		}
	}
	return list
}

// execOn runs statements on one connection, as a person with a client does.
func execOn(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	if len(statements) == 0 {
		t.Fatal("the page has no such block")
	}
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer func() { // the pool would not know of variables that they set
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// remains are all things of the server that adopting activityd may leave behind.
func remains(t *testing.T, db *sql.DB) (list []string) {
	t.Helper()
	for _, query := range []string{
		"SELECT CONCAT('database ', schema_name) FROM information_schema.schemata",
		"SELECT CONCAT_WS(' ', 'column', table_schema, table_name, column_name, column_type) FROM information_schema.columns WHERE table_schema IN ('site', 'activityd') ORDER BY 1",
		"SELECT CONCAT_WS(' ', 'key', table_schema, table_name, index_name, seq_in_index, column_name) FROM information_schema.statistics WHERE table_schema IN ('site', 'activityd') ORDER BY 1",
		"SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers WHERE trigger_schema IN ('site', 'activityd') ORDER BY 1",
		"SELECT CONCAT('user ', user) FROM mysql.user WHERE user IN ('site', 'activityd')",
		"SELECT CONCAT_WS(' ', 'right', db, user, table_name) FROM mysql.tables_priv WHERE db IN ('site', 'activityd')",
		"SELECT CONCAT_WS(' ', 'right', db, user, table_name, column_name) FROM mysql.columns_priv WHERE db IN ('site', 'activityd')",
	} {
		list = append(list, firstColumn(t, db, query)...)
	}
	return list
}

func firstColumn(t *testing.T, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var value string
		must(t, rows.Scan(&value))
		list = append(list, value)
	}
	must(t, rows.Err())
	return list
}

// as returns the address of a database for a user with the password of the pages.
func as(m *localserver.MySQL, user, database string) string {
	return fmt.Sprintf("%s:secret@unix(%s)/%s", user, m.Addr(), database)
}

// digits is a table of the numbers 0 to 9.
func digits(name string) string {
	all := "SELECT 0 AS n"
	for n := range 9 {
		all += fmt.Sprint(" UNION ALL SELECT ", n+1)
	}
	return "(" + all + ") AS " + name
}

// rowsOfARead counts the rows that MySQL reads for the photos of a member.
func rowsOfARead(t *testing.T, dsn string, viewer, owner member.ID) int {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(1))
	must(t, err)
	defer func() { _ = db.Close() }()
	before := servertest.SessionStatus(t, db, "Handler_read%")
	album, err := contacts.NewMySQL(db).Look(t.Context(), contacts.Viewer{ID: viewer}, owner, 10, 0)
	must(t, err)
	if len(album.Photos) != 10 {
		t.Errorf("shown are %+v", album.Photos)
	}
	return servertest.SessionStatus(t, db, "Handler_read%") - before
}

// TestUninstallingFromTheSitesOwnDatabase: the tables of activityd's own, its triggers,
// its user and its keys go; the site's stay.
func TestUninstallingFromTheSitesOwnDatabase(t *testing.T) {
	t.Parallel()
	m, err := localserver.StartMySQL(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.CreateDatabase(t.Context(), "site"))
	admin := queueOf(t, m.DSN("site"))
	succeed(t, "schema", "--apply", "--mysql-dsn="+m.DSN("site"))
	execOn(t, admin, []string{"DROP TABLE tasks, held_keys, idempotency_keys, paused_queues, once_keys, push_devices, push_settings, push_mutes, push_events, push_receipts, broadcast_members"})
	execOn(t, admin, []string{"CREATE USER 'site'@'%'"})
	before := remains(t, admin)
	succeed(t, "schema", "--apply", "--mysql-dsn="+m.DSN("site"))
	succeed(t, "schema", "--triggers", "--apply", "--mysql-dsn="+m.DSN("site"))
	execOn(t, admin, []string{"CREATE USER 'activityd'@'%' IDENTIFIED BY 'secret'"})
	setup, err := os.ReadFile("../../docs/setup.md")
	must(t, err)
	execOn(t, admin, regexp.MustCompile(`(?m)^GRANT .* TO '(activityd|site)'@'%'`).FindAllString(string(setup), -1))
	succeed(t, "schema", "--triggers", "--remove", "--mysql-dsn="+m.DSN("site"))
	execOn(t, admin, pageSQL(t, "docs/setup.md")["remove_tables"])
	if diff := cmp.Diff(before, remains(t, admin)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

var (
	readmeDSN    = regexp.MustCompile(`ACTIVITYD_MYSQL_DSN='(\w+):(\w+)@tcp\([^)]*\)/(\w+)'`)
	readmeSource = regexp.MustCompile(`,"source":"[a-z]+"(,"behind_seconds":[\d.]+)?`) // index or database: the story does not determine which set is there first
	readmeSrc    = regexp.MustCompile(`<recent-contact-photos src="http://127\.0\.0\.1:8080(/v1/\S+)"`)
	readmeAnswer = regexp.MustCompile(`^\$ curl http://127\.0\.0\.1:8080(/v1/\S+)\n(\{.*\})\n$`)
	readmeRun    = regexp.MustCompile(`(?m)(?:^|\$\()activityd ([^#)&\n]*)`)
)

// story returns a file of the README's five minutes. A pattern must match it.
func story(t *testing.T, file string, has *regexp.Regexp) (text string, found []string) {
	t.Helper()
	content, err := os.ReadFile("../../testdata/readme/" + file)
	must(t, err)
	if found = has.FindStringSubmatch(string(content)); found == nil {
		t.Fatalf("%s has no %s:\n%s", file, has, content)
	}
	return string(content), found
}

// storyCommands runs the commands of activityd in a file, with the flags of the servers, up to serve. It returns the
// flags of serve, and the later commands.
func storyCommands(t *testing.T, file string, flags map[string][]string, replace *strings.Replacer) (serve []string, rest [][]string) {
	t.Helper()
	text, _ := story(t, file, readmeRun)
	for _, match := range readmeRun.FindAllStringSubmatch(text, -1) {
		args := strings.Fields(replace.Replace(match[1]))
		switch {
		case args[0] == "serve":
			serve = append([]string{}, args[1:]...)
		case serve != nil:
			rest = append(rest, args)
		default:
			succeed(t, append(args, flags[args[0]]...)...)
		}
	}
	if serve == nil {
		t.Fatalf("%s does not serve", file)
	}
	return serve, rest
}

// TestTheReadmeByTheLetter: on an empty server, the README's five minutes lead to the answer that it shows.
// TestTheReadmeShowsItsStory, in the root, holds the page to the files.
func TestTheReadmeByTheLetter(t *testing.T) {
	t.Parallel()
	_, dsn := story(t, "2-start.sh", readmeDSN)
	_, shown := story(t, "4-answer.txt", readmeAnswer)
	_, src := story(t, "5-index.html", readmeSrc)
	database, _ := story(t, "1-database.sql", regexp.MustCompile("'"+dsn[2]+"'"))
	try, _ := story(t, "3-try.sql", regexp.MustCompile("INSERT INTO tasks"))
	m, err := localserver.StartMySQL(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.CreateDatabase(t.Context(), "other"))
	execOn(t, queueOf(t, m.DSN("other")), statements(database))

	user, redisServer := as(m, dsn[1], dsn[3]), servertest.Redis(t)
	inMySQL := []string{"--mysql-dsn=" + user}
	flags := map[string][]string{"schema": inMySQL, "backfill": append(inMySQL, "--redis-url="+redisServer.URL())}
	keys := filepath.Join(t.TempDir(), "keys.json")
	inFolder := strings.NewReplacer("../keys.json", keys)
	first, _ := storyCommands(t, "2-start.sh", flags, inFolder)
	again, after := storyCommands(t, "6-widget.sh", flags, inFolder)
	if len(first) != 0 || len(after) != 1 {
		t.Fatalf("serve %v, then %v", first, after)
	}
	r := start(t, configFor(t, user, redisServer.URL(), again...))
	r.openSite(t, user)
	execOn(t, r.db, statements(try))
	r.awaitTasks(t)
	status, got := page(t, r.url+shown[1])
	if diff := cmp.Diff(readmeSource.ReplaceAllString(shown[2], ""), readmeSource.ReplaceAllString(strings.TrimSpace(got), "")); status != 200 || diff != "" {
		t.Errorf("status %d, the answer (-README +served):\n%s", status, diff)
	}

	_, origin := story(t, "6-widget.sh", regexp.MustCompile(`--allow-origin (\S+) `))
	asks, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+src[1], http.NoBody)
	must(t, err)
	asks.Header.Set("Origin", origin[1])
	asks.Header.Set("Authorization", "Bearer "+strings.TrimSpace(succeed(t, after[0]...)))
	response, err := http.DefaultClient.Do(asks)
	must(t, err)
	body, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	if diff := cmp.Diff(readmeSource.ReplaceAllString(shown[2], ""), strings.TrimSpace(string(body))); diff != "" ||
		response.Header.Get("Access-Control-Allow-Origin") != origin[1] {
		t.Errorf("the page is answered %s %v (-README +served):\n%s", response.Status, response.Header, diff)
	}
}
