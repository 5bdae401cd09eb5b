package schema_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// check returns the findings.
func check(t *testing.T, db *sql.DB) []schema.Finding {
	t.Helper()
	findings, err := schema.Check(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// damages are statements that spoil a table, and the finding.
var damages = map[string]struct {
	do    string
	wrong bool
	want  string // table: what
}{
	"a column less":                {"ALTER TABLE users DROP COLUMN last_upload", true, "users: there is no column last_upload"},
	"a date with a calendar":       {"ALTER TABLE photos MODIFY date_upload DATETIME NOT NULL", true, "photos: column date_upload is datetime: want unix seconds"},
	"a date that may be NULL":      {"ALTER TABLE photos MODIFY date_upload BIGINT UNSIGNED NULL", true, "photos: column date_upload may be NULL"},
	"seconds with a fraction":      {"ALTER TABLE photos MODIFY date_upload DECIMAL(14, 3) NOT NULL", true, "photos: column date_upload is decimal(14,3)"},
	"a title that may be NULL":     {"ALTER TABLE photos MODIFY title VARCHAR(255) NULL", true, "photos: column title may be NULL"},
	"a numeric visibility":         {"ALTER TABLE photos MODIFY visibility TINYINT NOT NULL", true, "photos: column visibility is tinyint"},
	"a grant in words":             {"ALTER TABLE contacts MODIFY is_friend ENUM('no','yes') NOT NULL", true, "contacts: column is_friend is enum('no','yes'): want a number, 0 for no"},
	"pairs that may be twice":      {"ALTER TABLE contacts DROP PRIMARY KEY, ADD KEY (user_id, contact_id)", true, "contacts: there is no unique key (user_id, contact_id)"},
	"no transactions":              {"ALTER TABLE contacts ENGINE=MyISAM", true, "contacts: is kept by MyISAM, which has no transactions"},
	"dedupe keys that are twice":   {"ALTER TABLE tasks DROP KEY dedupe, ADD KEY dedupe (dedupe_key)", true, "tasks: has no UNIQUE KEY dedupe (dedupe_key)"},
	"an older index for claims":    {"ALTER TABLE tasks DROP KEY claim, ADD KEY claim (queue, id)", true, "tasks: has no KEY claim"},
	"no table of keys":             {"DROP TABLE idempotency_keys", true, "idempotency_keys: there is no such table"},
	"no index of photos":           {"ALTER TABLE photos DROP KEY newest", false, "photos: there is no index (owner_id, visibility, date_upload, id)"},
	"an index without the date":    {"ALTER TABLE photos DROP KEY newest, ADD KEY newest2 (owner_id, visibility)", false, "photos: no index has the order of (owner_id, visibility, date_upload, id)"},
	"pairs the other way around":   {"ALTER TABLE contacts DROP PRIMARY KEY, ADD PRIMARY KEY (contact_id, user_id)", false, "contacts: there is no index (user_id)"},
	"a view in place of the queue": {"RENAME TABLE tasks TO jobs; CREATE VIEW tasks AS SELECT * FROM jobs", true, "tasks: is a view"},
}

// TestCheckFindsWhatIsWrong damages a table, checks, follows the finding, and
// checks again.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servertest.MySQL(t)
			run(t, db, strings.Split(damage.do, "; ")...)
			findings := check(t, db)
			at := slices.IndexFunc(findings, func(f schema.Finding) bool { return strings.Contains(f.Table+": "+f.What, damage.want) })
			if at < 0 || findings[at].Wrong != damage.wrong {
				t.Fatalf("found %+v, want %q, wrong %t", findings, damage.want, damage.wrong)
			}
			for _, f := range findings {
				statement, isStatement := strings.CutSuffix(f.Do, ";")
				if !isStatement || !strings.HasPrefix(statement, "ALTER TABLE") || strings.Contains(statement, "…") {
					return // it takes a person
				}
				run(t, db, statement)
			}
			if left := check(t, db); len(left) > 0 {
				t.Errorf("after %+v: %+v", findings, left)
			}
		})
	}
}

// TestCheckBearsWhatServes: tables need not be those of schema.sql.
func TestCheckBearsWhatServes(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	if findings := check(t, db); len(findings) > 0 {
		t.Errorf("the tables of schema.sql: %+v", findings)
	}
	run(t, db,
		"ALTER TABLE users MODIFY id INT UNSIGNED NOT NULL, ADD COLUMN email VARCHAR(40) NOT NULL",
		"ALTER TABLE photos DROP KEY newest, MODIFY visibility VARCHAR(20) CHARACTER SET latin1 NULL, MODIFY title TEXT NOT NULL, ADD KEY (visibility, owner_id, date_upload)",
		"ALTER TABLE blocks DROP PRIMARY KEY, ADD KEY (blocked_id, user_id)",
		"ALTER TABLE contacts DROP PRIMARY KEY, ADD COLUMN no INT NOT NULL AUTO_INCREMENT PRIMARY KEY, ADD UNIQUE KEY pair (user_id, contact_id)",
		"ALTER TABLE tasks ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT ''")
	if findings := check(t, db); len(findings) > 0 {
		t.Errorf("other tables that serve: %+v", findings)
	}
}

// asViews puts the site's tables behind views.
var asViews = []string{
	"RENAME TABLE users TO m, contacts TO r, blocks TO b, photos TO p",
	"CREATE VIEW users AS SELECT id, username, last_upload FROM m",
	"CREATE VIEW contacts AS SELECT user_id, contact_id, is_friend, is_family FROM r",
	"CREATE VIEW blocks AS SELECT user_id, blocked_id FROM b",
	"CREATE VIEW photos AS SELECT id, owner_id, title, visibility, date_upload FROM p",
}

func TestCheckLooksThroughViews(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do    string
		wrong bool
		want  string
	}{
		"nothing":                  {"DO 1", false, ""},
		"a grant of one bit":       {"ALTER TABLE r MODIFY is_friend BIT(1) NOT NULL", false, ""},
		"no index of photos":       {"ALTER TABLE p DROP KEY newest", false, "photos: there is no index (owner_id, visibility, date_upload, id), beneath the view"},
		"an expression":            {"CREATE OR REPLACE VIEW photos AS SELECT id, owner_id, title, IF(visibility = 'public', 'public', 'private') AS visibility, date_upload FROM p", false, "photos: no index has the order of"},
		"pairs that may be twice":  {"ALTER TABLE r DROP PRIMARY KEY, ADD KEY (user_id, contact_id)", false, "contacts: there is no unique key (user_id, contact_id), beneath the view"},
		"a view made each time":    {"CREATE OR REPLACE VIEW contacts AS SELECT user_id, contact_id, is_friend, is_family FROM r LIMIT 1000000", false, "contacts: there is no unique key (user_id, contact_id), beneath the view"},
		"a numeric visibility":     {"CREATE OR REPLACE VIEW photos AS SELECT id, owner_id, title, visibility + 0 AS visibility, date_upload FROM p", true, "photos: column visibility is"},
		"a title that may be NULL": {"CREATE OR REPLACE VIEW photos AS SELECT id, owner_id, NULLIF(title, '') AS title, visibility, date_upload FROM p", true, "photos: column title may be NULL"},
		"a definer that is gone":   {"CREATE OR REPLACE DEFINER = 'gone'@'localhost' SQL SECURITY DEFINER VIEW photos AS SELECT id, owner_id, title, visibility, date_upload FROM p", true, "photos: is a view that the server cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servertest.MySQL(t)
			run(t, db, asViews...)
			run(t, db, "INSERT INTO m (id, username) SELECT seq.n, 'x' FROM (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3) AS seq",
				"INSERT INTO r (user_id, contact_id) VALUES (1, 2), (1, 3), (2, 1)", "INSERT INTO b VALUES (1, 2, 0), (2, 3, 0)",
				"INSERT INTO p (owner_id, date_upload) VALUES (1, 5), (1, 6), (2, 7)")
			run(t, db, test.do)
			findings := check(t, db)
			if test.want == "" {
				if len(findings) > 0 {
					t.Errorf("found %+v", findings)
				}
				return
			}
			if len(findings) == 0 || findings[0].Wrong != test.wrong || !strings.Contains(findings[0].Table+": "+findings[0].What, test.want) {
				t.Errorf("found %+v, want %q, wrong %t", findings, test.want, test.wrong)
			}
		})
	}
}

// pageRights are the GRANTs of docs/setup.md.
func pageRights(database string) (grants []string) {
	for _, table := range []string{"users", "contacts", "blocks", "photos"} {
		grants = append(grants, "SELECT ON "+database+"."+table)
	}
	for _, table := range schema.Tables()[4:] {
		grants = append(grants, "SELECT, INSERT, UPDATE, DELETE ON "+database+"."+table)
	}
	return grants
}

// With the rights of docs/setup.md all is seen that can be.
func TestCheckWithTheRightsOfServe(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	admin := open(t, dsn)
	database := column(t, admin, "SELECT DATABASE()")[0]
	serve := restricted(t, admin, dsn, "serve_check", pageRights(database)...)
	if findings := check(t, serve); len(findings) > 0 {
		t.Errorf("found %+v", findings)
	}
	run(t, admin, "ALTER TABLE photos DROP KEY newest", "ALTER TABLE tasks DROP KEY claim")
	if findings := check(t, serve); len(findings) != 2 || findings[0].Table != "tasks" || !findings[0].Wrong || findings[1].Table != "photos" || findings[1].Wrong {
		t.Errorf("found %+v, want a key of tasks and one of photos, the wrong one first", findings)
	}
	run(t, admin, "ALTER TABLE photos ADD KEY newest (owner_id, visibility, date_upload, id)", "ALTER TABLE tasks ADD KEY claim (state, queue, priority, id)")
	run(t, admin, fmt.Sprintf("REVOKE SELECT ON %s.photos FROM serve_check@localhost", database))
	findings := check(t, serve)
	if want := fmt.Sprintf("GRANT SELECT ON %#q.photos TO 'serve_check'@'localhost';", database); len(findings) != 1 || !findings[0].Wrong || !strings.Contains(findings[0].Do, want) {
		t.Errorf("without a right: %+v, want %q", findings, want)
	}
}

// Behind views the user of serve sees columns and types, and a finding says that it sees no plans.
func TestCheckWithTheRightsOfServeOnViews(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	admin := open(t, dsn)
	run(t, admin, asViews...)
	serve := restricted(t, admin, dsn, "serve_views", pageRights(column(t, admin, "SELECT DATABASE()")[0])...)
	if findings := check(t, serve); len(findings) != 1 || findings[0].Wrong || !strings.Contains(findings[0].What, "'serve_views'@'localhost' may not see what it is made of") {
		t.Errorf("found %+v, want that the plans cannot be seen", findings)
	}
	run(t, admin, "CREATE OR REPLACE VIEW users AS SELECT id, username, FROM_UNIXTIME(last_upload) AS last_upload FROM m")
	is := regexp.MustCompile(`column last_upload is (datetime|timestamp): want `) // timestamp: MariaDB from 11.7 on
	if findings := check(t, serve); len(findings) < 1 || !findings[0].Wrong || !is.MatchString(findings[0].What) {
		t.Errorf("found %+v, want the type of last_upload first", findings)
	}
}
