package schema_test

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// cascades are the foreign keys that a site may have.
var cascades = []string{
	"ALTER TABLE contacts ADD FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE ON UPDATE CASCADE",
	"ALTER TABLE contacts ADD FOREIGN KEY (contact_id) REFERENCES users (id) ON DELETE CASCADE ON UPDATE CASCADE",
	"ALTER TABLE photos ADD FOREIGN KEY (owner_id) REFERENCES users (id) ON DELETE CASCADE ON UPDATE CASCADE",
}

// public makes photos public where a statement names no visibility.
const public = "ALTER TABLE photos ALTER COLUMN visibility SET DEFAULT 'public'"

// small is a site of five members. 1 and 2 follow 3, which uploaded at 500, and in
// private before and after, and 3 follows 1; 4 and 5 never uploaded.
var small = []string{
	"INSERT INTO users (id) VALUES (1), (2), (3), (4), (5)",
	"INSERT INTO contacts (user_id, contact_id) VALUES (1, 3), (2, 3), (3, 1)",
	"INSERT INTO photos (id, owner_id, date_upload) VALUES (30, 3, 500)",
	"INSERT INTO photos (id, owner_id, date_upload, visibility) VALUES (31, 3, 400, 'private'), (32, 3, 700, 'private')",
	"DELETE FROM tasks",
}

// triggered is a small site with triggers.
func triggered(t *testing.T, withCascades bool) *sql.DB {
	t.Helper()
	db := servertest.MySQL(t)
	if withCascades {
		run(t, db, cascades...)
	}
	install(t, db)
	run(t, db, public)
	run(t, db, small...)
	return db
}

func install(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := standard.Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

// session is a database, or a transaction on it.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func run(t *testing.T, db session, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// undone lends f a transaction that is rolled back.
func undone(t *testing.T, db *sql.DB, f func(*sql.Tx)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	f(tx)
}

// column reads a column of strings.
func column(t *testing.T, db session, query string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// queued are the tasks in the order of their types, subjects and contacts.
func queued(t *testing.T, db session) []string {
	t.Helper()
	all := column(t, db, "SELECT CONCAT_WS(' ', type, subject, JSON_EXTRACT(args, '$.contact_id')) FROM tasks")
	slices.Sort(all)
	return all
}

// uploads are the members that have a last upload, with it.
func uploads(t *testing.T, db session) string {
	t.Helper()
	return strings.Join(column(t, db, "SELECT CONCAT(id, ':', last_upload) FROM users WHERE last_upload IS NOT NULL ORDER BY id"), " ")
}

// changes are the statements of a small site, the tasks that come of them,
// and the last uploads afterwards ("" when they stay as they are).
var changes = map[string]struct {
	do      []string
	tasks   []string
	uploads string
}{
	"a photo":                       {[]string{"INSERT INTO photos (owner_id, date_upload) VALUES (4, 600)"}, []string{"upload 4"}, "3:500 4:600"},
	"a photo of the same second":    {[]string{"INSERT INTO photos (owner_id, date_upload) VALUES (3, 500)"}, nil, ""},
	"a private photo":               {[]string{"INSERT INTO photos (owner_id, date_upload, visibility) VALUES (3, 501, 'private'), (4, 501, 'private')"}, nil, ""},
	"a private photo among others":  {[]string{"INSERT INTO photos (owner_id, date_upload, visibility) VALUES (3, 900, 'private'), (4, 600, 'public'), (5, 900, 'private')"}, []string{"upload 4"}, "3:500 4:600"},
	"a private photo shown":         {[]string{"UPDATE photos SET visibility = 'family' WHERE id = 32"}, []string{"upload 3"}, "3:700"},
	"an old private photo shown":    {[]string{"UPDATE photos SET visibility = 'public' WHERE id = 31"}, nil, ""},
	"all private photos shown":      {[]string{"UPDATE photos SET visibility = 'public' WHERE visibility = 'private'"}, []string{"upload 3"}, "3:700"},
	"a photo hidden and shown":      {[]string{"UPDATE photos SET visibility = 'private' WHERE id = 30", "UPDATE photos SET visibility = 'public' WHERE id = 30"}, nil, ""},
	"shown, redated, given away":    {[]string{"UPDATE photos SET owner_id = 4, date_upload = 600, visibility = 'friends' WHERE id = 31"}, []string{"upload 4"}, "3:500 4:600"},
	"a private photo replaced":      {[]string{"REPLACE INTO photos (id, owner_id, date_upload, visibility) VALUES (32, 3, 700, 'public')"}, []string{"upload 3"}, "3:700"},
	"shown where it is there":       {[]string{"INSERT INTO photos (id, owner_id, date_upload, visibility) VALUES (32, 3, 1, 'private') ON DUPLICATE KEY UPDATE visibility = 'public'"}, []string{"upload 3"}, "3:700"},
	"photos, rising":                {[]string{"INSERT INTO photos (owner_id, date_upload) VALUES (4, 1), (4, 2), (5, 9)"}, []string{"upload 4", "upload 4", "upload 5"}, "3:500 4:2 5:9"},
	"photos by select":              {[]string{"INSERT INTO photos (owner_id, date_upload) SELECT owner_id, date_upload + 1 FROM photos WHERE id = 30"}, []string{"upload 3"}, "3:501"},
	"a photo ignored":               {[]string{"INSERT IGNORE INTO photos (id, owner_id, date_upload) VALUES (30, 4, 900)"}, nil, ""},
	"a photo that is there, redone": {[]string{"INSERT INTO photos (id, owner_id, date_upload) VALUES (30, 3, 900) ON DUPLICATE KEY UPDATE date_upload = VALUES(date_upload)"}, []string{"upload 3"}, "3:900"},
	"a photo replaced":              {[]string{"REPLACE INTO photos (id, owner_id, date_upload) VALUES (30, 3, 900)"}, []string{"upload 3"}, "3:900"},
	"a photo backdated":             {[]string{"UPDATE photos SET date_upload = 1"}, nil, ""},
	"a photo given away":            {[]string{"UPDATE photos SET owner_id = 4 WHERE id = 30"}, []string{"upload 4"}, "3:500 4:500"},
	"a photo shown to fewer":        {[]string{"UPDATE photos SET visibility = 'private'", "UPDATE photos SET title = 'x'"}, nil, ""},

	"a contact":               {[]string{"INSERT INTO contacts (user_id, contact_id) VALUES (4, 5)"}, []string{"add_contact 4 5"}, ""},
	"a contact replaced":      {[]string{"REPLACE INTO contacts (user_id, contact_id, is_family) VALUES (1, 3, 1)"}, []string{"add_contact 1 3", "remove_contact 1 3"}, ""},
	"a grant":                 {[]string{"UPDATE contacts SET is_friend = 1, is_family = 1"}, nil, ""},
	"another contact instead": {[]string{"UPDATE contacts SET contact_id = 4 WHERE contact_id = 3"}, []string{"add_contact 1 4", "add_contact 2 4", "remove_contact 1 3", "remove_contact 2 3"}, ""},
	"the contact of another":  {[]string{"UPDATE contacts SET user_id = 5 WHERE user_id = 1"}, []string{"add_contact 5 3", "remove_contact 1 3"}, ""},
	"contacts deleted":        {[]string{"DELETE FROM contacts WHERE contact_id = 3"}, []string{"remove_contact 1 3", "remove_contact 2 3"}, ""},

	"a last upload that the site keeps": {[]string{"UPDATE users SET last_upload = 700 WHERE id IN (3, 4)"}, []string{"upload 3", "upload 4"}, "3:700 4:700"},
	"a last upload before its photo": {
		[]string{"UPDATE users SET last_upload = 700 WHERE id = 4", "INSERT INTO photos (owner_id, date_upload) VALUES (4, 700)"},
		[]string{"upload 4"},
		"3:500 4:700",
	},
	"a last upload that falls":   {[]string{"UPDATE users SET last_upload = 9 WHERE id = 3"}, nil, "3:9"},
	"another id":                 {[]string{"UPDATE users SET id = 8 WHERE id = 3"}, []string{"upload 8"}, "8:500"},
	"a member that comes back":   {[]string{"INSERT INTO users (id, last_upload) VALUES (9, 400), (10, 0)"}, []string{"upload 9"}, "3:500 9:400 10:0"},
	"a member without followers": {[]string{"DELETE FROM users WHERE id = 5"}, []string{"refill 5"}, ""},
	"the photo of no member": {
		[]string{"SET foreign_key_checks = 0", "INSERT INTO photos (owner_id, date_upload) VALUES (77, 900)", "SET foreign_key_checks = 1"},
		nil, "",
	},
}

func TestTriggersTellOfChanges(t *testing.T) {
	t.Parallel()
	for _, withCascades := range []bool{false, true} {
		db := triggered(t, withCascades)
		for name, change := range changes {
			undone(t, db, func(tx *sql.Tx) {
				run(t, tx, change.do...)
				if diff := gocmp.Diff(change.tasks, queued(t, tx)); diff != "" {
					t.Errorf("%s, cascades %t: tasks (-want +got):\n%s", name, withCascades, diff)
				}
				want := strings.Trim(cmp.Or(change.uploads, "3:500"), "-")
				if got := uploads(t, tx); got != want {
					t.Errorf("%s, cascades %t: last uploads %q, want %q", name, withCascades, got, want)
				}
			})
		}
	}
}

// Whether foreign keys delete the contacts or the site does, every follower has
// its task.
func TestTriggersTellOfMembersWhoLeave(t *testing.T) {
	t.Parallel()
	byHand := []string{"remove_contact 1 3", "remove_contact 1 3", "remove_contact 2 3", "remove_contact 2 3", "remove_contact 3 1"}
	for name, test := range map[string]struct {
		withCascades bool
		do           []string
		tasks        []string
	}{
		"by cascade":           {true, []string{"DELETE FROM users WHERE id = 3"}, []string{byHand[0], byHand[2], "refill 3"}},
		"the member alone":     {false, []string{"DELETE FROM users WHERE id = 3"}, []string{byHand[0], byHand[2], "refill 3"}},
		"the member first":     {false, []string{"DELETE FROM users WHERE id = 3", "DELETE FROM contacts WHERE 3 IN (user_id, contact_id)"}, append(byHand, "refill 3")},
		"the contacts first":   {false, []string{"DELETE FROM contacts WHERE 3 IN (user_id, contact_id)", "DELETE FROM users WHERE id = 3"}, []string{byHand[0], byHand[2], byHand[4], "refill 3"}},
		"both in one":          {false, []string{"DELETE contacts, users FROM contacts JOIN users ON users.id = contacts.user_id WHERE users.id = 2"}, []string{"refill 2", "remove_contact 2 3"}},
		"with many":            {true, []string{"DELETE FROM users WHERE id IN (1, 3)"}, []string{"refill 1", "refill 3", "remove_contact 2 3", "remove_contact 3 1"}},
		"by replacement":       {false, []string{"REPLACE INTO users (id, last_upload) VALUES (3, 500)"}, []string{"refill 3", "refill 3", "remove_contact 1 3", "remove_contact 2 3", "upload 3"}},
		"and comes back known": {false, []string{"DELETE FROM users WHERE id = 3", "INSERT INTO users (id, last_upload) VALUES (3, 500)"}, []string{"refill 3", "refill 3", "remove_contact 1 3", "remove_contact 2 3", "upload 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := triggered(t, test.withCascades)
			run(t, db, test.do...)
			if diff := gocmp.Diff(slices.Sorted(slices.Values(test.tasks)), queued(t, db)); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTriggersHoldTheWholeRangeOfIDs(t *testing.T) {
	t.Parallel()
	const biggest = "18446744073709551615"
	db := triggered(t, true)
	run(t, db,
		"INSERT INTO users (id) VALUES ("+biggest+")",
		"INSERT INTO contacts (user_id, contact_id) VALUES ("+biggest+", 1), (1, "+biggest+")",
		"INSERT INTO photos (owner_id, date_upload) VALUES ("+biggest+", 1)",
		"DELETE FROM users WHERE id = "+biggest)
	want := []string{"add_contact 1 " + biggest, "add_contact " + biggest + " 1", "refill " + biggest, "remove_contact 1 " + biggest, "upload " + biggest}
	if diff := gocmp.Diff(want, queued(t, db)); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
}

// A private photo does not wait for a lock on its owner, and a public photo does: with
// a statement that waits for nothing, only the private photo is inserted.
func TestAPrivatePhotoNeedsNoLockOfItsOwner(t *testing.T) {
	t.Parallel()
	db := triggered(t, false)
	undone(t, db, func(holder *sql.Tx) {
		run(t, holder, "SELECT id FROM users WHERE id = 3 FOR UPDATE")
		undone(t, db, func(tx *sql.Tx) {
			run(t, tx, "SET SESSION innodb_lock_wait_timeout = 1",
				"INSERT INTO photos (owner_id, date_upload, visibility) VALUES (3, 900, 'private')",
				"UPDATE photos SET date_upload = 901 WHERE id = 32",
				"UPDATE photos SET visibility = 'private' WHERE id = 30")
			for _, s := range []string{
				"INSERT INTO photos (owner_id, date_upload) VALUES (3, 900)",
				"UPDATE photos SET visibility = 'public' WHERE id = 32",
			} {
				if _, err := tx.ExecContext(t.Context(), s); err == nil || !strings.Contains(err.Error(), "1205") {
					t.Errorf("%s: %v, want that it waits for the owner", s, err)
				}
			}
		})
	})
}
