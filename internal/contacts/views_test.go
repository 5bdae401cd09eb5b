package contacts_test

import (
	"database/sql"
	"testing"
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

// TestPropertyOnViews: all our SQL works on views.
func TestPropertyOnViews(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	hideBehindViews(t, db)
	checkPropertyOn(t, db)
}
