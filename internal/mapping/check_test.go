package mapping_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// findings are all that `activityd schema --check --map` finds.
func (g *ground) findings(t *testing.T) (all []schema.Finding) {
	t.Helper()
	found, err := schema.Check(t.Context(), g.db)
	must(t, err)
	more, err := mapping.Check(t.Context(), g.db, g.mapping)
	must(t, err)
	return append(found, more...)
}

// planted are changes of the example's site, with the finding; "" is none.
var planted = map[string]struct {
	do    string
	wrong bool
	want  string
}{
	"a cascade on a copy":              {"ALTER TABLE site.friendships ADD CONSTRAINT f FOREIGN KEY (asked) REFERENCES site.members (id) ON DELETE CASCADE", false, "friendships has the foreign key f ON DELETE CASCADE, whose changes fire no trigger"},
	"a cascade on members":             {"CREATE TABLE site.companies (id INT PRIMARY KEY); ALTER TABLE site.members ADD COLUMN company INT NULL, ADD CONSTRAINT f FOREIGN KEY (company) REFERENCES site.companies (id) ON DELETE CASCADE", false, "members has the foreign key f ON DELETE CASCADE, whose changes fire no trigger"},
	"no index of photos":               {"ALTER TABLE site.pictures DROP KEY activityd_newest", false, "activityd schema --map FILE prints it"},
	"a column that is gone":            {"ALTER TABLE site.members DROP COLUMN nick", true, "has no column nick"},
	"a column of a changed expression": {"ALTER TABLE site.pictures MODIFY activityd_date BIGINT UNSIGNED GENERATED ALWAYS AS (5) VIRTUAL", true, "activityd_date was made of another description"},
	"a trigger that is gone":           {"DROP TRIGGER site.activityd_photos_after_update", true, "has no trigger activityd_photos_after_update of site.map:"},
	"another trigger":                  {"DROP TRIGGER site.activityd_photos_after_insert; CREATE TRIGGER site.activityd_photos_after_insert AFTER INSERT ON site.pictures FOR EACH ROW SET @x = 1", true, "has the trigger activityd_photos_after_insert as site.map:36 [photos] does not make it"},
	"blocks the other way around":      {"CREATE OR REPLACE VIEW blocks AS SELECT banned AS user_id, owner AS blocked_id FROM site.bans WHERE (owner > 0 AND banned > 0) IS TRUE", true, "[blocks]: the view activityd.blocks is not the one"},
	"another condition":                {"CREATE OR REPLACE VIEW users AS SELECT id AS id, COALESCE(CONVERT(nick USING utf8mb4), '') AS username, last_upload FROM site.members WHERE (id > 0 AND (deleted_at IS NOT NULL)) IS TRUE", true, "[users]: the view activityd.users is not the one"},
	"the same view by hand":            {"CREATE OR REPLACE ALGORITHM = MERGE VIEW blocks (user_id, blocked_id) AS SELECT owner, banned FROM site.bans WHERE ((owner > 0) AND ((banned > 0))) IS TRUE", false, ""},
}

func TestWhatTriggersWouldMissIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, example(t))
			g.adopt(t)
			run(t, g.db, strings.Split(g.named(test.do), "; ")...)
			g.finds(t, strings.ReplaceAll(test.want, "view activityd.", "view "+g.database+"."), test.wrong)
		})
	}
}

// finds fails the test unless the check finds what is wanted, or nothing if that is empty.
func (g *ground) finds(t *testing.T, want string, wrong bool) {
	t.Helper()
	found := g.findings(t)
	for _, f := range found {
		if want != "" && strings.Contains(f.String(), want) && f.Wrong == wrong && f.Do != "" {
			return
		}
	}
	if want != "" || len(found) > 0 {
		t.Errorf("found %v, want %q, wrong %t", found, want, wrong)
	}
}

// A word that the ENUM of a column lacks is found.
func TestValuesThatAColumnDoesNotHave(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"visible IN ('FRIEND', 'family ') OR no = 5": "",
		"CONCAT(visible, 'x') = 'freindx'":           "", // the result of a function is not known
		"visible = 'freind'":                         "which has no 'freind'",
		"no > 5 AND NOT (visible <=> 'it''s')":       "which has no 'it''s'",
		"visible NOT IN ('friend', 'fam')":           ".visible is enum('friend','family'), which has no 'fam'",
	} {
		s := sites["words of its own, signed seconds"]
		s.tables = strings.Replace(s.tables, "friend BOOLEAN NOT NULL", "no INT NOT NULL, visible ENUM('friend', 'family') NOT NULL", 1)
		s.description = strings.Replace(s.description, "is_friend = friend", "is_friend = "+condition, 1)
		g := newGround(t, s)
		g.adopt(t)
		g.finds(t, want, false)
	}
}

// Where a server takes letters of both cases for the same in names, triggers and findings are as elsewhere.
func TestNamesAsTheServerComparesThem(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t, "--lower-case-table-names=1")
	db, err := mysql.Open(server.DSN(servertest.Database))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := sites["words of its own, signed seconds"]
	run(t, db, "CREATE DATABASE Site", "DROP TABLE users, contacts, blocks, photos")
	tables := strings.NewReplacer("site.people", "Site.People", "site.follows", "SITE.Follows", "site.images", "site.IMAGES")
	run(t, db, strings.Split(tables.Replace(s.tables), ";")...)
	m, err := mapping.Parse("site.map", strings.Replace(tables.Replace(s.description), "= activityd", "= Activityd", 1))
	must(t, err)
	g := &ground{aSite: s, db: db, database: servertest.Database, mapping: m}
	g.adopt(t)
	must(t, m.Triggers().Install(t.Context(), db)) // over themselves
	run(t, db, "INSERT INTO site.people (no) VALUES (1), (2)", "INSERT INTO site.follows VALUES (1, 2, TRUE, TRUE)")
	g.finds(t, "", false)
	if got := g.tasks(t); len(got) != 1 || got[0] != "add_contact 1 2" {
		t.Errorf("the tasks are %q", got)
	}
	run(t, db, "ALTER TABLE site.people ADD COLUMN boss BIGINT UNSIGNED NULL, ADD CONSTRAINT f FOREIGN KEY (boss) REFERENCES site.people (no) ON DELETE CASCADE")
	g.finds(t, "has the foreign key f ON DELETE CASCADE, whose changes fire no trigger", false)
	if n, err := m.Triggers().Remove(t.Context(), db); err != nil || n != 10 {
		t.Errorf("removed %d triggers: %v", n, err)
	}
}

// Names may have hyphens, dots and blanks, and be bytes; a file may begin with a byte order mark.
func TestNamesAndTextOfAllKinds(t *testing.T) {
	t.Parallel()
	s := sites["words of its own, signed seconds"]
	names := strings.NewReplacer("site.people", "site.`my.people`", "site.follows", "site.the-follows", "name = name", "name = user-name",
		"name VARCHAR(20)", "`user-name` VARBINARY(20)", "whom", "`to whom`")
	s.tables = strings.ReplaceAll(names.Replace(s.tables), "the-follows", "`the-follows`")
	s.description = "\ufeff" + strings.TrimSpace(strings.Replace(names.Replace(s.description), "username = name", "username = user-name", 1))
	g := newGround(t, s)
	g.adopt(t)
	run(t, g.db, g.named("INSERT INTO site.`my.people` (no, `user-name`) VALUES (1, 'ada'), (2, 'zo\u00eb'), (3, x'ff')"), g.named("INSERT INTO site.`the-follows` VALUES (1, 2, TRUE, TRUE)"))
	if got := column(t, g.db, "SELECT username FROM users ORDER BY id"); len(got) != 3 || got[0] != "ada" || got[1] != "zo\u00eb" {
		t.Errorf("the names are %q", got)
	}
	if got := g.tasks(t); len(got) != 1 || got[0] != "add_contact 1 2" {
		t.Errorf("the tasks are %q", got)
	}
	g.finds(t, "", false)
}
