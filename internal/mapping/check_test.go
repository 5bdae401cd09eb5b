package mapping_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// findings are all that `activityd schema --check --map` finds, in lines.
func (g *ground) findings(t *testing.T) (all []schema.Finding) {
	t.Helper()
	found, err := schema.Check(t.Context(), g.db)
	must(t, err)
	more, err := mapping.Check(t.Context(), g.db, g.mapping)
	must(t, err)
	return append(g.mapping.Remedies(found), more...)
}

// TestNothingIsFoundWhereNothingIsWrong: on each kind of site, with rows.
func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	for name, s := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, s)
			g.adopt(t)
			for _, f := range g.findings(t) {
				if !strings.Contains(f.What, "ON UPDATE CURRENT_TIMESTAMP") || name != "flags, fractions, and blocks among the contacts" {
					t.Errorf("found %v", f)
				}
			}
		})
	}
}

// planted are what a site of the example may have, and what is found of it. "" is nothing.
var planted = map[string]struct {
	do    string
	wrong bool
	want  string
}{
	"nothing":                          {"DO 1", false, ""},
	"rows":                             {rows, false, ""},
	"a cascade on a copy":              {"ALTER TABLE site.friendships ADD CONSTRAINT f FOREIGN KEY (asked) REFERENCES site.members (id) ON DELETE CASCADE", false, "friendships has the foreign key f ON DELETE CASCADE, whose changes fire no trigger: the copy in activityd.contacts would stay"},
	"a cascade on members":             {company + "ADD CONSTRAINT f FOREIGN KEY (company) REFERENCES site.companies (id) ON DELETE CASCADE", false, "members has the foreign key f ON DELETE CASCADE, whose changes fire no trigger: members who go so stay in the sets of their followers"},
	"members set to NULL":              {company + "ADD CONSTRAINT f FOREIGN KEY (company) REFERENCES site.companies (id) ON DELETE SET NULL", false, ""}, // nobody asks for the column
	"photos that go with their album":  {album + "ON DELETE CASCADE", false, ""},                                                                          // need no task
	"photos that stay":                 {album + "ON DELETE RESTRICT", false, ""},
	"photos that change with a class":  {"CREATE TABLE site.classes (no TINYINT PRIMARY KEY); ALTER TABLE site.pictures MODIFY privacy TINYINT NOT NULL, ADD CONSTRAINT f FOREIGN KEY (privacy) REFERENCES site.classes (no) ON UPDATE CASCADE", false, "pictures has the foreign key f ON UPDATE CASCADE, whose changes fire no trigger: photos that are shown so are not announced"},
	"photos that go with their owner":  {"ALTER TABLE site.pictures ADD CONSTRAINT f FOREIGN KEY (owner) REFERENCES site.members (id) ON DELETE CASCADE ON UPDATE CASCADE", false, ""},
	"bans that go with their owner":    {"ALTER TABLE site.bans ADD CONSTRAINT f FOREIGN KEY (owner) REFERENCES site.members (id) ON DELETE CASCADE", false, ""},
	"no index of photos":               {"ALTER TABLE site.pictures DROP KEY activityd_newest", false, "ADD KEY activityd_newest (`owner`, `activityd_visibility`, `activityd_date`, `id`)"},
	"no index of a copy":               {"ALTER TABLE site.friendships DROP KEY asked_by, DROP KEY activityd_contacts_1, DROP KEY activityd_contacts_2", false, "friendships there is no index (`asked_by`, `asked`): each change of a pair scans the whole table"},
	"a table without transactions":     {"ALTER TABLE site.bans ENGINE=MyISAM", true, "is kept by MyISAM, which has no transactions"},
	"a column that is gone":            {"ALTER TABLE site.members DROP COLUMN nick", true, "has no column nick"},
	"a column of a changed expression": {"ALTER TABLE site.pictures MODIFY activityd_date BIGINT UNSIGNED GENERATED ALWAYS AS (5) VIRTUAL", true, "activityd_date was made of another description"},
	"a member that is touched":         {"ALTER TABLE site.members ADD COLUMN updated TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", false, "column updated is ON UPDATE CURRENT_TIMESTAMP: with triggers, each upload changes it"},
	"a trigger that is gone":           {"DROP TRIGGER site.activityd_photos_after_update", true, "has no trigger activityd_photos_after_update that this user can see"},
	"no trigger at all":                {"DROP TRIGGER site.activityd_photos_before_update; DROP TRIGGER site.activityd_photos_after_update", true, "has no trigger"},
	"another trigger":                  {"DROP TRIGGER site.activityd_photos_after_insert; CREATE TRIGGER site.activityd_photos_after_insert AFTER INSERT ON site.pictures FOR EACH ROW SET @x = 1", true, "has the trigger activityd_photos_after_insert as site.map:36 [photos] does not make it"},
	"a maker that is gone":             {"DROP TRIGGER site.activityd_photos_after_insert; CREATE DEFINER = gone@localhost TRIGGER site.activityd_photos_after_insert AFTER INSERT ON site.pictures FOR EACH ROW SET @x = 1", true, "which runs in the name of gone@localhost: there is no such user"},
	"local times":                      {rows + "; INSERT INTO site.pictures (owner, privacy, created_at) VALUES (1, 4, UTC_TIMESTAMP() + INTERVAL 2 HOUR)", false, "s ahead of the server's clock: a local time"},
	"a last upload that is behind":     {rows + "; UPDATE site.members SET last_upload = NULL WHERE id = 1", false, "last_upload of member 1 is earlier than a photo that others may see"},
	"blocks the other way around":      {"CREATE OR REPLACE VIEW blocks AS SELECT banned AS user_id, owner AS blocked_id FROM site.bans WHERE (owner > 0 AND banned > 0) IS TRUE", true, "site.map:31 [blocks]: the view activityd.blocks is not the one"},
	"a condition less":                 {"CREATE OR REPLACE VIEW users AS SELECT id AS id, COALESCE(CONVERT(nick USING utf8mb4), '') AS username, last_upload FROM site.members WHERE (id > 0) IS TRUE", true, "site.map:7 [users]: the view activityd.users is not the one"},
	"another condition":                {"CREATE OR REPLACE VIEW users AS SELECT id AS id, COALESCE(CONVERT(nick USING utf8mb4), '') AS username, last_upload FROM site.members WHERE (id > 0 AND (deleted_at IS NOT NULL)) IS TRUE", true, "site.map:7 [users]: the view activityd.users is not the one"},
	"a view of two tables":             {"CREATE OR REPLACE VIEW blocks AS SELECT b.owner AS user_id, b.banned AS blocked_id FROM site.bans b JOIN site.members m ON m.id = b.owner WHERE (b.owner > 0 AND b.banned > 0) IS TRUE", true, "[blocks]: the view activityd.blocks is not the one"},
	"the same view by hand":            {"CREATE OR REPLACE ALGORITHM = MERGE VIEW blocks (user_id, blocked_id) AS SELECT owner, banned FROM site.bans WHERE ((owner > 0) AND ((banned > 0))) IS TRUE", false, ""},
	"a narrow last upload":             {"ALTER TABLE site.members MODIFY last_upload INT NULL", false, "members column last_upload is int"},
	"a last upload in milliseconds":    {rows + "; UPDATE site.members SET last_upload = 1363665432000", true, "column last_upload has 1363665432000, which is no date in unix seconds"},
}

const (
	rows = "INSERT INTO site.members (id) VALUES (1), (2); INSERT INTO site.friendships (asked_by, asked, state, is_family) VALUES (1, 2, 1, TRUE);" +
		" INSERT INTO site.pictures (owner, privacy, created_at) VALUES (1, 4, '2013-03-19 03:57:12'), (1, 0, '2013-03-20 03:57:12'), (1, 1, '2013-03-19'), (1, 2, '2013-03-19'), (1, 3, '2013-03-19')"
	company = "CREATE TABLE site.companies (id INT PRIMARY KEY); ALTER TABLE site.members ADD COLUMN company INT NULL, "
	album   = "CREATE TABLE site.albums (id INT PRIMARY KEY); ALTER TABLE site.pictures ADD COLUMN album INT NULL, ADD CONSTRAINT f FOREIGN KEY (album) REFERENCES site.albums (id) "
)

func TestWhatTriggersWouldMissIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, example(t))
			g.adopt(t)
			g.plant(t, test.do)
			found := g.findings(t)
			want := strings.NewReplacer("activityd.contacts", g.database+".contacts", "view activityd.", "view "+g.database+".").Replace(test.want)
			if want == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			for _, f := range found {
				if strings.Contains(f.String(), want) && f.Wrong == test.wrong && f.Do != "" {
					return
				}
			}
			t.Errorf("found %v, want %q, wrong %t", found, want, test.wrong)
		})
	}
}

// TestCopiesThatNothingKeeps: without the triggers.
func TestCopiesThatNothingKeeps(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	_, err := g.mapping.Triggers().Remove(t.Context(), g.db)
	must(t, err)
	if found := g.findings(t); len(found) != 1 || found[0].Wrong || found[0].Table != "contacts" || !strings.Contains(found[0].What, "no triggers that keep them") {
		t.Errorf("found %v", found)
	}
}

func (g *ground) plant(t *testing.T, statements string) {
	t.Helper()
	for s := range strings.SplitSeq(g.named(statements), "; ") {
		run(t, g.db, s)
	}
}

// TestTheSitesOwnNames: without a description, on tables of activityd's names.
func TestTheSitesOwnNames(t *testing.T) {
	t.Parallel()
	const triggers = "triggers; "
	for name, test := range map[string]struct {
		do    string
		wrong bool
		want  string
	}{
		"nothing":                     {"DO 1", false, ""},
		"triggers":                    {triggers + "DO 1", false, ""},
		"followers of a member":       {triggers + "ALTER TABLE contacts ADD FOREIGN KEY (contact_id) REFERENCES users (id) ON DELETE CASCADE", false, ""},
		"another parent":              {triggers + groups + "ON DELETE CASCADE", false, "contacts has the foreign key f ON DELETE CASCADE, whose changes fire no trigger: contacts who go so stay in sets"},
		"another parent, no triggers": {groups + "ON DELETE CASCADE", false, ""},
		"a key that moves":            {triggers + "ALTER TABLE contacts ADD CONSTRAINT f FOREIGN KEY (contact_id) REFERENCES users (id) ON UPDATE CASCADE", false, "contacts has the foreign key f ON UPDATE CASCADE"},
		"ids below zero":              {"ALTER TABLE users MODIFY id BIGINT NOT NULL; INSERT INTO users (id) VALUES (-7)", true, "users column id has -7"},
		"signed ids":                  {"ALTER TABLE users MODIFY id BIGINT NOT NULL; INSERT INTO users (id) VALUES (7)", false, "users column id is bigint"},
		"signed dates":                {"ALTER TABLE photos MODIFY date_upload BIGINT NOT NULL", false, "photos column date_upload is bigint"},
		"a narrow last upload":        {"ALTER TABLE users MODIFY last_upload INT UNSIGNED NULL", false, "users column last_upload is int"},
		"milliseconds":                {"INSERT INTO photos (owner_id, visibility, date_upload) VALUES (1, 'public', 1363665432000)", true, "photos column date_upload has 1363665432000"},
		"a binary log of statements":  {"SET SESSION binlog_format = STATEMENT", true, "binlog_format is STATEMENT"},
		"changes that are not logged": {"SET SESSION sql_log_bin = 0", true, "out of the binary log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servertest.MySQL(t)
			if strings.Contains(test.do, "SESSION") {
				db = logging(t)
			}
			db.SetMaxOpenConns(1) // it keeps what is set for the session
			for s := range strings.SplitSeq(test.do, "; ") {
				if s == "triggers" {
					err := schema.StandardTriggers().Install(t.Context(), db)
					must(t, err)
					continue
				}
				run(t, db, s)
			}
			found, err := mapping.Check(t.Context(), db, nil)
			must(t, err)
			if test.want == "" && len(found) > 0 || test.want != "" && (len(found) != 1 || found[0].Wrong != test.wrong || !strings.Contains(found[0].String(), test.want)) {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

const groups = "CREATE TABLE circles (id INT PRIMARY KEY); ALTER TABLE contacts ADD COLUMN circle INT NULL, ADD CONSTRAINT f FOREIGN KEY (circle) REFERENCES circles (id) "

// logging returns a database of a server that has a binary log.
func logging(t *testing.T, args ...string) *sql.DB {
	t.Helper()
	server := servertest.OwnMySQL(t, append(args, "--log-bin=changes", "--server-id=1")...)
	db, err := mysql.Open(server.DSN(servertest.Database))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestWhatAFailoverWouldLose: a binary log that leaves a database out, and a server that has a source.
func TestWhatAFailoverWouldLose(t *testing.T) {
	t.Parallel()
	db := logging(t)
	found, err := mapping.Check(t.Context(), db, nil)
	must(t, err)
	if len(found) > 0 {
		t.Errorf("found %v", found)
	}
	db = logging(t, "--binlog-ignore-db=other", "--binlog-ignore-db="+servertest.Database)
	err = schema.StandardTriggers().Install(t.Context(), db)
	must(t, err)
	if _, err := db.ExecContext(context.Background(), "CHANGE MASTER TO MASTER_HOST = 'elsewhere'"); err != nil {
		run(t, db, "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'elsewhere'")
	}
	found, err = mapping.Check(t.Context(), db, nil)
	must(t, err)
	if len(found) != 2 || !found[0].Wrong || !strings.Contains(found[0].What, "the binary log leaves the database "+servertest.Database+" out") || found[1].Wrong || !strings.Contains(found[1].What, "misses what comes by replication") {
		t.Errorf("found %v", found)
	}
}
