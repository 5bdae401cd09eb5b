package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Members returns up to limit ids of members above after, ascending. Begin with 0
// and continue with the last id received; an empty result is the end.
func (m *MySQL) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	if limit <= 0 {
		return nil, nil
	}
	what := fmt.Sprintf("reading the members after %d", after)
	return collect(ctx, m.db, what, scanID, `SELECT id FROM users WHERE id > ? ORDER BY id LIMIT ?`, after, limit)
}

// CountMembers returns how many members have ids from first to last. It counts along the primary key.
func (m *MySQL) CountMembers(ctx context.Context, first, last member.ID) (n int64, err error) {
	scan := func(rows *sql.Rows) error { return rows.Scan(&n) }
	err = each(ctx, m.db, "counting the members", scan, `SELECT COUNT(*) FROM users WHERE id >= ? AND id <= ?`, first, last)
	return n, err
}

// NthMember returns the n-th member above after; 0: there are fewer. It reads n entries of the primary key.
func (m *MySQL) NthMember(ctx context.Context, after member.ID, n int64) (id member.ID, err error) {
	scan := func(rows *sql.Rows) error { return scanID(rows, &id) }
	err = each(ctx, m.db, "looking for a member by its number", scan, `SELECT id FROM users WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?`, after, n-1)
	return id, err
}

// LastUploads returns when each of ids that is a member last uploaded, in unix seconds; 0: never.
func (m *MySQL) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	scan := func(rows *sql.Rows, id *member.ID, at *uint64) error { return rows.Scan((*number)(id), (*number)(at)) }
	return lookUp(ctx, m.db, len(ids), "reading the last uploads of %d members", scan, `
SELECT u.id, COALESCE(u.last_upload, 0)
FROM `+idTable+` AS q
STRAIGHT_JOIN users u ON u.id = q.id`, idList(ids))
}

// Newest is when a member uploaded last, by both records of it, in unix seconds. The
// site promises that LastUpload is at least Photo. Whether it is at least Private, too, is
// the site's choice: only the owner sees these photos.
type Newest struct {
	LastUpload uint64 // of users; 0: never uploaded
	Photo      uint64 // the date of the newest photo that is not private; 0: there is none
	Private    uint64 // the date of the newest private photo; 0: there is none
}

// Newest returns for each of ids that is a member when it uploaded last. It reads an index entry of each visibility.
func (m *MySQL) Newest(ctx context.Context, ids []member.ID) (map[member.ID]Newest, error) {
	scan := func(rows *sql.Rows, id *member.ID, n *Newest) error {
		return rows.Scan((*number)(id), (*number)(&n.LastUpload), (*number)(&n.Photo), (*number)(&n.Private))
	}
	return lookUp(ctx, m.db, len(ids), "reading the newest photos of %d members", scan, newestText, idList(ids))
}

var newestText = `
SELECT o.id, COALESCE(o.last_upload, 0), GREATEST(0` + eachOf(shown, "", func(c class) string {
	return `,
  COALESCE(` + newestIn(c, "date_upload") + `, 0)`
}) + `),
  COALESCE(` + newestIn(class{Visibility: Private}, "date_upload") + `, 0)
FROM ` + idTable + ` AS q
STRAIGHT_JOIN users o ON o.id = q.id`
