package mapping_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/schema"
)

// findings are all that `activityd schema --check --map` finds, in lines.
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
	"nothing":                          {"DO 1", false, ""},
	"a cascade on a copy":              {"ALTER TABLE site.friendships ADD CONSTRAINT f FOREIGN KEY (asked) REFERENCES site.members (id) ON DELETE CASCADE", false, "friendships has the foreign key f ON DELETE CASCADE, whose changes fire no trigger"},
	"a cascade on members":             {company + "ADD CONSTRAINT f FOREIGN KEY (company) REFERENCES site.companies (id) ON DELETE CASCADE", false, "members has the foreign key f ON DELETE CASCADE, whose changes fire no trigger"},
	"members set to NULL":              {company + "ADD CONSTRAINT f FOREIGN KEY (company) REFERENCES site.companies (id) ON DELETE SET NULL", false, ""}, // nobody asks for the column
	"photos that go with their album":  {album + "ON DELETE CASCADE", false, ""},                                                                          // need no task
	"photos that change with a class":  {"CREATE TABLE site.classes (no TINYINT PRIMARY KEY); ALTER TABLE site.pictures MODIFY privacy TINYINT NOT NULL, ADD CONSTRAINT f FOREIGN KEY (privacy) REFERENCES site.classes (no) ON UPDATE CASCADE", false, "pictures has the foreign key f ON UPDATE CASCADE, whose changes fire no trigger"},
	"photos that go with their owner":  {"ALTER TABLE site.pictures ADD CONSTRAINT f FOREIGN KEY (owner) REFERENCES site.members (id) ON DELETE CASCADE ON UPDATE CASCADE", false, ""},
	"no index of photos":               {"ALTER TABLE site.pictures DROP KEY activityd_newest", false, "activityd schema --map FILE prints it"},
	"a column that is gone":            {"ALTER TABLE site.members DROP COLUMN nick", true, "has no column nick"},
	"a column of a changed expression": {"ALTER TABLE site.pictures MODIFY activityd_date BIGINT UNSIGNED GENERATED ALWAYS AS (5) VIRTUAL", true, "activityd_date was made of another description"},
	"a trigger that is gone":           {"DROP TRIGGER site.activityd_photos_after_update", true, "has no trigger activityd_photos_after_update of site.map:"},
	"another trigger":                  {"DROP TRIGGER site.activityd_photos_after_insert; CREATE TRIGGER site.activityd_photos_after_insert AFTER INSERT ON site.pictures FOR EACH ROW SET @x = 1", true, "has the trigger activityd_photos_after_insert as site.map:36 [photos] does not make it"},
	"blocks the other way around":      {"CREATE OR REPLACE VIEW blocks AS SELECT banned AS user_id, owner AS blocked_id FROM site.bans WHERE (owner > 0 AND banned > 0) IS TRUE", true, "site.map:31 [blocks]: the view activityd.blocks is not the one"},
	"another condition":                {"CREATE OR REPLACE VIEW users AS SELECT id AS id, COALESCE(CONVERT(nick USING utf8mb4), '') AS username, last_upload FROM site.members WHERE (id > 0 AND (deleted_at IS NOT NULL)) IS TRUE", true, "site.map:7 [users]: the view activityd.users is not the one"},
	"the same view by hand":            {"CREATE OR REPLACE ALGORITHM = MERGE VIEW blocks (user_id, blocked_id) AS SELECT owner, banned FROM site.bans WHERE ((owner > 0) AND ((banned > 0))) IS TRUE", false, ""},
	"a narrow last upload":             {"ALTER TABLE site.members MODIFY last_upload INT NULL", false, "users column last_upload is int"},
}

const (
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
			want := strings.ReplaceAll(test.want, "view activityd.", "view "+g.database+".")
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
	if found := g.findings(t); len(found) != 1 || found[0].Wrong || !strings.Contains(found[0].What, "has no trigger activityd_photos_before_update") {
		t.Errorf("found %v", found)
	}
}

func (g *ground) plant(t *testing.T, statements string) {
	t.Helper()
	for s := range strings.SplitSeq(g.named(statements), "; ") {
		run(t, g.db, s)
	}
}
