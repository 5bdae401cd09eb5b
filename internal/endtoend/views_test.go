package endtoend_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// ownSchema is the schema of a site which never heard of activityd. Members have other numbers and names, a
// relation has a degree instead of two flags, and the visibility of a picture has its own words.
var ownSchema = []string{
	"DROP TABLE users, contacts, blocks, photos",
	"CREATE TABLE app_accounts (account_no BIGINT UNSIGNED PRIMARY KEY, nick VARCHAR(40) NOT NULL, latest BIGINT UNSIGNED NULL)",
	`CREATE TABLE app_follows (who BIGINT UNSIGNED, whom BIGINT UNSIGNED, degree ENUM('plain','friend','family','both') NOT NULL DEFAULT 'plain',
		since TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (who, whom), KEY (whom, who))`,
	"CREATE TABLE app_bans (by_whom BIGINT UNSIGNED, whom BIGINT UNSIGNED, PRIMARY KEY (by_whom, whom))",
	`CREATE TABLE app_pictures (picture_no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, account_no BIGINT UNSIGNED NOT NULL, caption VARCHAR(40) NOT NULL DEFAULT '',
		audience ` + visibilityEnum() + ` NOT NULL, taken BIGINT UNSIGNED NOT NULL, KEY (account_no, audience, taken, picture_no))`,

	"CREATE VIEW users AS SELECT account_no AS id, nick AS username, latest AS last_upload FROM app_accounts",
	`CREATE VIEW contacts AS SELECT who AS user_id, whom AS contact_id, degree IN ('friend', 'both') AS is_friend,
		degree IN ('family', 'both') AS is_family, UNIX_TIMESTAMP(since) AS created_at FROM app_follows`,
	"CREATE VIEW blocks AS SELECT by_whom AS user_id, whom AS blocked_id FROM app_bans",
	"CREATE VIEW photos AS SELECT picture_no AS id, account_no AS owner_id, caption AS title, audience AS visibility, taken AS date_upload FROM app_pictures",
}

// visibilityEnum is a type of column that has all classes.
func visibilityEnum() string {
	var words []string
	for _, v := range contacts.Classes() {
		words = append(words, "'"+string(v)+"'")
	}
	return "ENUM(" + strings.Join(words, ",") + ")"
}

// TestSiteWithItsOwnSchema: a site adopts activityd by four views, and inserts tasks into activityd's table.
func TestSiteWithItsOwnSchema(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	s := ownSite{newGround(t, needFor(seed)), rand.New(rand.NewPCG(seed, 0))}
	for _, text := range ownSchema {
		s.exec(t, text)
	}
	var viewers []member.ID
	for id := range member.ID(people) {
		viewers = append(viewers, id+1)
		s.exec(t, "INSERT INTO app_accounts (account_no, nick) VALUES (?, ?)", uint64(id+1), fmt.Sprint("account ", id+1))
	}
	p := s.started(t, "worker")
	for i := range 200 {
		s.change(t, start+uint64(i/3))
	}
	s.awaitIdle(t)
	if n := s.checkSets(t); n < people/2 {
		t.Errorf("there are %d sets", n)
	}
	if from := s.checkAnswers(t, p.reader, viewers); from[recent.FromIndex] < people/2 {
		t.Errorf("answers from %v", from)
	}
}

// ownSite makes changes by SQL of its own.
type ownSite struct {
	*ground
	rnd *rand.Rand
}

func (s ownSite) change(t *testing.T, date uint64) {
	t.Helper()
	who, whom := uint64(somePerson(s.rnd)), uint64(somePerson(s.rnd))
	switch k := s.rnd.IntN(10); {
	case k < 4:
		degree := []string{"plain", "friend", "family", "both"}[s.rnd.IntN(4)]
		s.commit(t,
			sqlText("REPLACE INTO app_follows (who, whom, degree) VALUES (?, ?, ?)", who, whom, degree),
			sqlText("INSERT INTO tasks (type, subject, args) VALUES ('add_contact', ?, JSON_OBJECT('contact_id', ?))", who, whom))
	case k < 5:
		s.commit(t,
			sqlText("DELETE FROM app_follows WHERE who = ? AND whom = ?", who, whom),
			sqlText("INSERT INTO tasks (type, subject, args) VALUES ('remove_contact', ?, JSON_OBJECT('contact_id', ?))", who, whom))
	case k < 9:
		s.commit(t,
			sqlText("INSERT INTO app_pictures (account_no, audience, taken) VALUES (?, ?, ?)", who, string(someVisibility(s.rnd)), date),
			sqlText("UPDATE app_accounts SET latest = GREATEST(COALESCE(latest, 0), ?) WHERE account_no = ?", date, who),
			sqlText("INSERT INTO tasks (type, subject) VALUES ('upload', ?)", who))
	default:
		s.commit(t, sqlText("REPLACE INTO app_bans (by_whom, whom) VALUES (?, ?)", who, whom))
	}
}

type statement struct {
	text string
	args []any
}

func sqlText(text string, args ...any) statement { return statement{text, args} }

func (s ownSite) commit(t *testing.T, statements ...statement) {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, st := range statements {
		_, err := tx.ExecContext(t.Context(), st.text, st.args...)
		must(t, err)
	}
	must(t, tx.Commit())
}
