package mapping_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestValuesThatAColumnDoesNotHave: a word that the ENUM of a column lacks, and a word in the place of a number.
func TestValuesThatAColumnDoesNotHave(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"visible = 'friend'":                         "",
		"visible IN ('FRIEND', 'family ') OR no = 5": "",
		"CONCAT(visible, 'x') = 'freindx'":           "", // the result of a function is not known
		"visible = 'freind'":                         "which has no 'freind'",
		"no > 5 AND NOT (visible <=> 'it''s')":       "which has no 'it''s'",
		"visible NOT IN ('friend', 'fam')":           "site_follows.visible is enum('friend','family'), which has no 'fam'",
		"CASE WHEN visible = 'x' THEN TRUE END":      "which has no 'x'",
		"no = 'public'":                              "WRONG: MySQL takes 'public' for 0",
		"no IN ('1', '2') AND whom <> 'everyone'":    "WRONG: MySQL takes 'everyone' for 0",
	} {
		s := sites["words of its own, signed seconds"]
		s.tables = strings.Replace(s.tables, "friend BOOLEAN NOT NULL", "no INT NOT NULL, visible ENUM('friend', 'family') NOT NULL", 1)
		s.description = strings.Replace(s.description, "is_friend = friend", "is_friend = "+condition, 1)
		g := newGround(t, s)
		for _, c := range g.mapping.Columns() {
			run(t, g.db, c.Statement())
		}
		want, wrong := strings.CutPrefix(strings.ReplaceAll(want, "site_", g.database+"_site."), "WRONG: ")
		if err := g.mapping.Fits(t.Context(), g.db); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", condition, err)
		}
		found, err := mapping.Check(t.Context(), g.db, g.mapping)
		must(t, err)
		there := false
		for _, f := range found {
			if strings.Contains(f.What, "which has no") || strings.Contains(f.What, "for 0") {
				there = true
				if want == "" || f.Wrong != wrong || !strings.Contains(f.What, want) || !strings.HasPrefix(f.Table, "site.map:") {
					t.Errorf("%s: found %v, want %q", condition, f, want)
				}
			}
		}
		if there != (want != "") {
			t.Errorf("%s: found %v, want %q", condition, found, want)
		}
	}
}

// TestConditionsThatNoRowMeets: once there are rows.
func TestConditionsThatNoRowMeets(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	for _, f := range g.findings(t) {
		t.Errorf("without rows: found %v", f)
	}
	g.plant(t, "INSERT INTO site.pictures (owner, privacy, created_at) VALUES (1, 4, '2013-03-19'), (1, 1, '2013-03-19')")
	var got []string
	for _, f := range g.findings(t) {
		if !f.Wrong && strings.Contains(f.What, "none meets") {
			got = append(got, f.String())
		}
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], "site.map:43 friends_family: of 2 rows of "+g.database+"_site.pictures none meets privacy = 3") || !strings.HasPrefix(got[1], "site.map:42 family: ") {
		t.Errorf("found %q", got)
	}
}

// TestNamesAsTheServerComparesThem: where letters of both cases are the same, nothing is found that is not, and
// foreign keys are.
func TestNamesAsTheServerComparesThem(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t, "--lower-case-table-names=1")
	db, err := mysql.Open(server.DSN(servertest.Database))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := sites["words of its own, signed seconds"]
	run(t, db, "CREATE DATABASE Site", "DROP TABLE users, contacts, blocks, photos")
	tables := strings.NewReplacer("site.people", "Site.People", "site.follows", "SITE.Follows", "site.images", "site.IMAGES")
	for statement := range strings.SplitSeq(tables.Replace(s.tables), ";") {
		run(t, db, statement)
	}
	m, err := mapping.Parse("site.map", strings.Replace(tables.Replace(s.description), "= activityd", "= Activityd", 1))
	must(t, err)
	g := &ground{aSite: s, db: db, database: servertest.Database, mapping: m}
	g.adopt(t)
	must(t, m.Triggers().Install(t.Context(), db)) // over themselves
	run(t, db, "INSERT INTO site.people (no) VALUES (1), (2)", "INSERT INTO site.follows VALUES (1, 2, TRUE, TRUE)")
	if found := g.findings(t); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if got := g.tasks(t); len(got) != 1 || got[0] != "add_contact 1 2" {
		t.Errorf("the tasks are %q", got)
	}
	run(t, db, "ALTER TABLE site.people ADD COLUMN boss BIGINT UNSIGNED NULL, ADD CONSTRAINT f FOREIGN KEY (boss) REFERENCES site.people (no) ON DELETE CASCADE")
	if found := g.findings(t); len(found) != 1 || !strings.Contains(found[0].What, "has the foreign key f ON DELETE CASCADE, whose changes fire no trigger") {
		t.Errorf("found %v, want the foreign key", found)
	}
	run(t, db, "DROP TRIGGER site.activityd_photos_after_update")
	if found := g.findings(t); len(found) != 2 || !found[0].Wrong || !strings.Contains(found[0].What, "has no trigger activityd_photos_after_update of site.map:") {
		t.Errorf("found %v, want the trigger", found)
	}
	if n, err := m.Triggers().Remove(t.Context(), db); err != nil || n != 9 {
		t.Errorf("removed %d triggers: %v", n, err)
	}
}

// TestNamesAndTextOfAllKinds: hyphens, dots and blanks, a byte order mark, names in bytes, and followers.
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
	for _, f := range g.findings(t) {
		t.Errorf("found %v", f)
	}
	if found, err := schema.Check(t.Context(), g.db); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
