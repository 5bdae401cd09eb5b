package contacts_test

import (
	"database/sql"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// hideBehindViews gives the site a schema of its own, and makes views of the
// names that we know.
func hideBehindViews(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, text := range []string{
		"RENAME TABLE users TO site_members, contacts TO site_relations, blocks TO site_bans, photos TO site_images",
		"ALTER TABLE site_members RENAME COLUMN last_upload TO newest_at",
		"CREATE VIEW users AS SELECT id, username, newest_at AS last_upload FROM site_members",
		"CREATE VIEW contacts AS SELECT user_id, contact_id, is_friend, is_family, created_at FROM site_relations",
		"CREATE VIEW blocks AS SELECT user_id, blocked_id, created_at FROM site_bans",
		"CREATE VIEW photos AS SELECT id, owner_id, title, visibility, date_upload FROM site_images",
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// TestTablesBecomeViews: a statement that was prepared on tables answers from the views that
// take their names.
func TestTablesBecomeViews(t *testing.T) {
	t.Parallel()
	db := openDB(t, mysql.WithMaxOpen(1))
	fillTwo(t, site.NewMySQL(db))
	store := contacts.NewMySQL(db)
	checkPhotoOfTwo(t, store)
	hideBehindViews(t, db)
	checkPhotoOfTwo(t, store)
	if _, err := db.ExecContext(t.Context(), "UPDATE site_images SET visibility = 'private'"); err != nil {
		t.Fatal(err)
	}
	album, err := contacts.Photos(t.Context(), store, contacts.Viewer{ID: 1}, 2, 10)
	if err != nil || len(album.Photos) != 0 {
		t.Errorf("what is private in the table behind the view: %+v, %v, want nothing", album, err)
	}
}

// TestPropertyOnViews: all our SQL works on views, and whatever the collation of a site's
// visibility is.
func TestPropertyOnViews(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	hideBehindViews(t, db)
	_, err := db.ExecContext(t.Context(), "ALTER TABLE site_images MODIFY visibility VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	checkPropertyOn(t, db)
}
