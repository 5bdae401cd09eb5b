package main

import (
	"database/sql"
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
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/mysql"
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
		for statement := range strings.SplitSeq(lineComment.ReplaceAllString(block[2], ""), ";") {
			if statement = strings.TrimSpace(statement); statement != "" {
				blocks[block[1]] = append(blocks[block[1]], statement)
			}
		}
	}
	return blocks
}

// execOn runs statements on one connection, as a person with a client does.
func execOn(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	if len(statements) == 0 {
		t.Fatal("the page has no such block")
	}
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer func() { _ = conn.Close() }()
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

// TestADatabaseOfViewsByTheLetter does what docs/adoption.md says, on a site with
// tables of its own, asks for an answer, and uninstalls it again.
func TestADatabaseOfViewsByTheLetter(t *testing.T) {
	t.Parallel()
	page := pageSQL(t, "docs/adoption.md")
	m, err := localserver.StartMySQL(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.CreateDatabase(t.Context(), "site"))
	admin := queueOf(t, m.DSN("site"))
	execOn(t, admin, page["site"])
	// The member 98765 has very many photos, of which most are private, and all older
	// than the one that the page uploads.
	execOn(t, admin, []string{
		"CREATE USER 'site'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE ON site.* TO 'site'@'%'",
		"INSERT INTO users (id, nick) VALUES (12345, 'ben'), (98765, NULL), (7, 'eve')",
		"INSERT INTO contacts (owner, other, kind) VALUES (12345, 7, 0), (98765, 12345, 1)",
		"INSERT INTO photos (owner, caption, privacy, created_at) VALUES (7, NULL, 4, '2013-03-19 03:57:11'), (7, 'not yet', 0, '2013-03-20 00:00:00')," +
			" (98765, 'of friends', 1, '2013-03-19 03:57:10')",
		"INSERT INTO photos (owner, caption, privacy, created_at) SELECT 98765, 'old', d.n % 2 * 4, TIMESTAMPADD(SECOND, a.n * 1000 + b.n * 100 + c.n * 10 + d.n, '2012-01-01')" +
			" FROM " + digits("a") + ", " + digits("b") + ", " + digits("c") + ", " + digits("d"),
	})
	before := remains(t, admin)
	execOn(t, admin, page["prepare"])
	execOn(t, admin, page["views"])
	if out := succeed(t, "schema", "--apply", "--mysql-dsn="+m.DSN("activityd")); out != "the 13 tables are there, and nothing is wrong with them\n" {
		t.Errorf("schema --apply: %s", out)
	}
	execOn(t, admin, page["rights"])

	redisServer := servertest.Redis(t)
	servers := []string{"--mysql-dsn=" + as(m, "activityd", "activityd"), "--redis-url=" + redisServer.URL()}
	succeed(t, append([]string{"backfill"}, servers...)...)
	r := start(t, configFor(t, as(m, "activityd", "activityd"), redisServer.URL()))
	if a := r.read(t, 12345); a.contact() != "7" || len(a.Photos) != 1 || a.Source != "index" {
		t.Errorf("before the change of the page: %+v", a)
	}
	execOn(t, queueOf(t, as(m, "site", "site")), page["change"])
	eventually(t, "the tasks are done", func() bool { return number(t, admin, "SELECT COUNT(*) FROM activityd.tasks") == 0 })
	if a := r.read(t, 12345); a.contact() != "98765" || len(a.Photos) != 10 || a.Source != "index" {
		t.Errorf("after it: %+v", a)
	}
	var visible int
	must(t, admin.QueryRowContext(t.Context(), "SELECT date_upload FROM activityd.photos WHERE title = 'The pier' AND visibility = 'public'").Scan(&visible))
	if visible != 1363665432 {
		t.Errorf("the photo is of %d", visible)
	}
	if rows := rowsOfARead(t, m.DSN("activityd")); rows > 300 {
		t.Errorf("a read of the owner of 10,000 photos reads %d rows", rows)
	}
	if _, err := admin.ExecContext(t.Context(), "INSERT INTO activityd.photos (owner_id, visibility) VALUES (7, 'public')"); err == nil {
		t.Error("a photo was inserted into the view")
	}
	must(t, r.stop())

	succeed(t, "reset", "--yes", "--redis-url="+redisServer.URL())
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Addr()})
	defer func() { _ = client.Close() }()
	must(t, client.Del(t.Context(), "activityd_events", "activityd_events_dead").Err())           // as the page says
	eventually(t, "Redis is empty", func() bool { return client.DBSize(t.Context()).Val() == 0 }) // a guard expires
	execOn(t, admin, page["remove"])
	if diff := cmp.Diff(before, remains(t, admin)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// digits is a table of the numbers 0 to 9.
func digits(name string) string {
	all := "SELECT 0 AS n"
	for n := range 9 {
		all += fmt.Sprint(" UNION ALL SELECT ", n+1)
	}
	return "(" + all + ") AS " + name
}

// rowsOfARead counts the rows that MySQL reads for the photos of member 98765.
func rowsOfARead(t *testing.T, dsn string) int {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(1))
	must(t, err)
	defer func() { _ = db.Close() }()
	count := func() (n int) {
		rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		must(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			var value int
			must(t, rows.Scan(&name, &value))
			n += value
		}
		must(t, rows.Err())
		return n
	}
	store := contacts.NewMySQL(db)
	before := count()
	album, err := store.VisiblePhotos(t.Context(), contacts.Viewer{ID: 12345}, 98765, 10)
	must(t, err)
	if len(album.Photos) != 10 || album.Photos[0].Title != "The pier" || album.Photos[1].Title != "of friends" {
		t.Errorf("shown are %+v", album.Photos)
	}
	return count() - before
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
	execOn(t, admin, []string{"DROP TABLE tasks, task_keys, paused_queues, once_keys, push_devices, push_settings, push_mutes, push_events, push_receipts"})
	execOn(t, admin, []string{"CREATE USER 'site'@'%'"})
	before := remains(t, admin)
	succeed(t, "schema", "--apply", "--mysql-dsn="+m.DSN("site"))
	succeed(t, "schema", "--triggers", "--apply", "--mysql-dsn="+m.DSN("site"))
	execOn(t, admin, []string{
		"CREATE USER 'activityd'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE, DELETE ON site.tasks TO 'activityd'@'%'",
		"GRANT INSERT (type, subject, args, queue, priority, expires_at, state, due_at) ON site.tasks TO 'site'@'%'",
	})
	succeed(t, "schema", "--triggers", "--remove", "--mysql-dsn="+m.DSN("site"))
	execOn(t, admin, pageSQL(t, "docs/adoption.md")["remove_tables"])
	if diff := cmp.Diff(before, remains(t, admin)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

var (
	readmeDSN    = regexp.MustCompile(`ACTIVITYD_MYSQL_DSN='(\w+):(\w+)@tcp\([^)]*\)/(\w+)'`)
	readmeSource = regexp.MustCompile(`,"source":"[a-z]+"`) // index or database: which set is there first is not said
	readmeViewer = regexp.MustCompile(`(?m)^activityd serve --viewer-keys \S+keys\.json --allow-origin (\S+) `)
	readmeSrc    = regexp.MustCompile(`<recent-contact-photos src="http://127\.0\.0\.1:8080(/v1/\S+)"`)
	readmeAnswer = regexp.MustCompile(`(?m)^\$ curl http://127\.0\.0\.1:8080(/v1/\S+)\n(\{.*\})$`)
)

// TestTheReadmeByTheLetter: on an empty server, what the README says to do in five minutes
// leads to the answer that it shows.
func TestTheReadmeByTheLetter(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	dsn, shown := readmeDSN.FindSubmatch(text), readmeAnswer.FindSubmatch(text)
	origin, src := readmeViewer.FindSubmatch(text), readmeSrc.FindSubmatch(text)
	if dsn == nil || shown == nil || origin == nil || src == nil || string(dsn[2]) != "secret" {
		t.Fatal("the README has no DSN, no request with its answer, no origin, or no widget")
	}
	page := pageSQL(t, "README.md")
	m, err := localserver.StartMySQL(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.CreateDatabase(t.Context(), "other"))
	execOn(t, queueOf(t, m.DSN("other")), page["database"])

	user := as(m, string(dsn[1]), string(dsn[3]))
	succeed(t, "schema", "--apply", "--mysql-dsn="+user)
	redisServer := servertest.Redis(t)
	succeed(t, "backfill", "--mysql-dsn="+user, "--redis-url="+redisServer.URL())
	keys := filepath.Join(t.TempDir(), "keys.json")
	succeed(t, "token", "--new-key=first", "--viewer-keys="+keys)
	r := start(t, configFor(t, user, redisServer.URL(), "--viewer-keys="+keys, "--allow-origin="+string(origin[1])))
	r.openSite(t, user)
	execOn(t, r.db, page["try"])
	r.awaitTasks(t)
	var status int
	got := strings.TrimSpace(r.get(t, string(shown[1]), &status))
	if diff := cmp.Diff(readmeSource.ReplaceAllString(string(shown[2]), ""), readmeSource.ReplaceAllString(got, "")); status != 200 || diff != "" {
		t.Errorf("status %d, the answer (-README +served):\n%s", status, diff)
	}

	asks, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+string(src[1]), http.NoBody)
	must(t, err)
	asks.Header.Set("Origin", string(origin[1]))
	asks.Header.Set("Authorization", "Bearer "+strings.TrimSpace(succeed(t, "token", "--viewer=12345", "--viewer-keys="+keys)))
	response, err := http.DefaultClient.Do(asks)
	must(t, err)
	body, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	if diff := cmp.Diff(readmeSource.ReplaceAllString(string(shown[2]), ""), strings.TrimSpace(string(body))); diff != "" ||
		response.Header.Get("Access-Control-Allow-Origin") != string(origin[1]) {
		t.Errorf("the page is answered %s %v (-README +served):\n%s", response.Status, response.Header, diff)
	}
}
