package site

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/activityd/activityd/internal/contacts"
)

// lastUploadKey makes the index of [MembersFirst]. activityd does not need it.
const lastUploadKey = "ALTER TABLE users ADD KEY last_upload (last_upload)"

// AddLastUploadKey makes the index of [MembersFirst].
func AddLastUploadKey(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, lastUploadKey); err != nil {
		return fmt.Errorf("add the key on last_upload: %w", err)
	}
	return nil
}

// The statements answer the question without activityd, by its exact definition. Their speed depends on the
// viewer. They share only the conditions of the classes of visibility with package contacts, so that each
// checks the other. The viewer need not exist.
var (
	// MembersFirst goes through the members by latest upload until a contact shows a photo: quick for a
	// viewer with many contacts, or with lively contacts. No earlier contact shows a photo. A contact whose
	// last upload is older than the found photo has no newer photo. The winner therefore has a last upload
	// between the two dates.
	MembersFirst = answerOf(`
  SELECT u.id, c.user_id AS viewer FROM (
    SELECT u.last_upload, ` + newestVisible + ` DIV ` + dates + ` AS shows
    FROM users u FORCE INDEX (last_upload)
    STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = u.id` + standing + `
    WHERE u.last_upload > 0 AND b.user_id IS NULL AND k.user_id IS NULL
    HAVING shows > 0 ORDER BY u.last_upload DESC LIMIT 1
  ) one
  STRAIGHT_JOIN users u FORCE INDEX (last_upload) ON u.last_upload BETWEEN one.shows AND one.last_upload
  STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = u.id` + standing + `
  WHERE b.user_id IS NULL AND k.user_id IS NULL ORDER BY ` + newestVisible + ` DESC LIMIT 1`)

	// ContactsFirst compares the newest visible photos of all contacts: quick for a viewer
	// with few of them. It is the definition, whatever last_upload says.
	ContactsFirst = answerOf(`
  SELECT u.id, c.user_id AS viewer FROM contacts c
  STRAIGHT_JOIN users u ON u.id = c.contact_id` + standing + `
  WHERE c.user_id = ? AND b.user_id IS NULL AND k.user_id IS NULL
  ORDER BY ` + newestVisible + ` DESC LIMIT 1`)
)

// standing joins the relations between owner u and the viewer of c.
const standing = `
    LEFT JOIN contacts g ON g.user_id = u.id AND g.contact_id = c.user_id
    LEFT JOIN blocks b ON b.user_id = u.id AND b.blocked_id = c.user_id
    LEFT JOIN blocks k ON k.user_id = c.user_id AND k.blocked_id = u.id`

// dates is the weight of the date in the rank of a photo. The rank is a number that orders photos by date,
// then id.
const dates = "100000000000000000000"

// newestVisible is the rank of the newest photo of u that the viewer may see, 0 if there
// is none: a step into the key newest for each class of visibility.
var newestVisible = `GREATEST(0` + contacts.EachShown("", func(v contacts.Visibility, granted string) string {
	return `,
      IF(` + granted + `, ` + newestOf(v) + `, 0)`
}) + `)`

// newestOf orders by the whole key, and compares with a literal in ASCII, since the
// servers would sort else.
func newestOf(v contacts.Visibility) string {
	return `COALESCE((SELECT x.date_upload * ` + dates + ` + x.id FROM photos x WHERE x.owner_id = u.id AND x.visibility = _ascii'` + string(v) + `'
        ORDER BY x.owner_id DESC, x.visibility DESC, x.date_upload DESC, x.id DESC LIMIT 1), 0)`
}

// answerOf returns the statement of the answer. winner is a statement that names owner and viewer.
func answerOf(winner string) string {
	return `
SELECT o.id, o.username, p.id, p.title, p.date_upload
FROM (` + winner + `
) w
STRAIGHT_JOIN users o ON o.id = w.id
LEFT JOIN contacts g ON g.user_id = w.id AND g.contact_id = w.viewer
STRAIGHT_JOIN photos p ON p.owner_id = w.id AND (` + contacts.EachShown("\n  OR ", func(v contacts.Visibility, granted string) string {
		return `p.visibility = '` + string(v) + `' AND ` + granted
	}) + `)
ORDER BY p.date_upload DESC, p.id DESC LIMIT ?`
}

// Plain is a way to answer the question as a site without activityd does. See [PlainSQL].
type Plain struct {
	Name string // for example "contacts first"
	Ask  func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error)
}

// plainStatement returns a statement with its arguments.
func plainStatement(text string, v contacts.Viewer, limit int) contacts.Statement {
	args := make([]any, strings.Count(text, "?"))
	for i := range args {
		args[i] = uint64(v.ID)
	}
	args[len(args)-1] = limit
	return contacts.Statement{Text: text, Args: args}
}

// plainWays names the statements for people.
var plainWays = []struct{ name, text string }{
	{"members by latest upload", MembersFirst},
	{"contacts first", ContactsFirst},
}

// PlainSQL returns both ways to ask MySQL or MariaDB. The album of a viewer that does not
// exist is empty.
func PlainSQL(db *sql.DB) (ways []Plain) {
	for _, w := range plainWays {
		ways = append(ways, Plain{Name: w.name, Ask: func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
			return AskPlainly(ctx, db, w.text, v, limit)
		}})
	}
	return ways
}

// AskPlainly asks by [MembersFirst] or [ContactsFirst].
func AskPlainly(ctx context.Context, db *sql.DB, text string, v contacts.Viewer, limit int) (contacts.Album, error) {
	statement := plainStatement(text, v, limit)
	rows, err := db.QueryContext(ctx, statement.Text, statement.Args...)
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
