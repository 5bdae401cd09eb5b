package demo

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
)

// plainQuery is the straightforward query: join the viewer's contacts with their photos,
// keep what the viewer may see, sort by date, and take the newest photo's owner; then take
// that owner's newest photos. It shares nothing with package contacts, so that the two
// check each other.
const plainQuery = `
WITH visible AS (
  SELECT p.id, p.title, p.date_upload, o.id AS owner_id, o.username
  FROM contacts c
  JOIN users v ON v.id = c.user_id
  JOIN users o ON o.id = c.contact_id
  JOIN photos p ON p.owner_id = o.id
  LEFT JOIN contacts mine ON mine.user_id = o.id AND mine.contact_id = v.id
  LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = v.id
  WHERE c.user_id = ? AND b.user_id IS NULL
    AND ( p.visibility = 'public'
      OR (p.visibility IN ('friends', 'friends_family') AND mine.is_friend)
      OR (p.visibility IN ('family', 'friends_family') AND mine.is_family))
), newest AS (
  SELECT owner_id FROM visible ORDER BY date_upload DESC, id DESC LIMIT 1
)
SELECT visible.owner_id, username, id, title, date_upload
FROM visible JOIN newest ON newest.owner_id = visible.owner_id
ORDER BY date_upload DESC, id DESC LIMIT ?`

// PlainSQL returns the [Plain] that asks MySQL or MariaDB in one statement. The album of
// a viewer that does not exist is empty.
func PlainSQL(db *sql.DB) Plain {
	return func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
		rows, err := db.QueryContext(ctx, plainQuery, uint64(v.ID), limit)
		if err != nil {
			return contacts.Album{}, fmt.Errorf("plain SQL for member %s: %w", v.ID, err)
		}
		defer func() { _ = rows.Close() }() // Err has the error
		var album contacts.Album
		for rows.Next() {
			var owner contacts.Profile
			var p contacts.Photo
			if err := rows.Scan(&owner.ID, &owner.Username, &p.ID, &p.Title, &p.DateUpload); err != nil {
				return contacts.Album{}, fmt.Errorf("plain SQL for member %s: %w", v.ID, err)
			}
			album.Contact = &owner
			album.Photos = append(album.Photos, p)
		}
		if err := rows.Err(); err != nil {
			return contacts.Album{}, fmt.Errorf("plain SQL for member %s: %w", v.ID, err)
		}
		return album, nil
	}
}
