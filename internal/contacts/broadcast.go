package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// BroadcastState is what a broadcast member is about to be; package broadcast says what follows from it.
type BroadcastState string

// The states; the empty one is that of a member that is none.
const (
	Joining  BroadcastState = "joining"
	Joined   BroadcastState = "broadcast"
	Leaving  BroadcastState = "leaving"
	NoMember BroadcastState = ""
)

// Broadcast is a row of broadcast_members.
type Broadcast struct {
	State  BroadcastState
	Change uint64 // what the last change of State is called, at random
}

// Broadcasts returns those of ids that are broadcast members. It is one statement, however many there are.
func (m *MySQL) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]Broadcast, error) {
	if len(ids) == 0 {
		return map[member.ID]Broadcast{}, nil
	}
	scan := func(rows *sql.Rows, id *member.ID, b *Broadcast) error {
		return rows.Scan((*number)(id), &b.State, (*number)(&b.Change))
	}
	return collectMap(ctx, m.prepared, fmt.Sprintf("looking up %d broadcast members", len(ids)), scan, `
SELECT b.member_id, b.state, b.change_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN broadcast_members b ON b.member_id = q.id`, idList(ids))
}

// AnyBroadcast reports whether there are broadcast members, in whatever state.
func (m *MySQL) AnyBroadcast(ctx context.Context) (bool, error) {
	found, err := collect(ctx, m.prepared, "looking for broadcast members", scanID, `SELECT member_id FROM broadcast_members LIMIT 1`)
	return len(found) > 0, err
}

// BroadcastUploads returns when each broadcast member that is a member uploaded last, 0 if never, and whether
// there are any rows.
func (m *MySQL) BroadcastUploads(ctx context.Context) (list []Contact, some bool, err error) {
	scan := func(rows *sql.Rows, c *Contact) error {
		some = true
		return rows.Scan((*number)(&c.ID), (*number)(&c.LastUpload))
	}
	list, err = collect(ctx, m.db, "reading the broadcast members", scan, `
SELECT COALESCE(u.id, 0), COALESCE(u.last_upload, 0)
FROM broadcast_members b
LEFT JOIN users u ON u.id = b.member_id`)
	return slices.DeleteFunc(list, func(c Contact) bool { return c.ID == 0 }), some, err
}

// ChangeBroadcast changes the state of a broadcast member, provided that its state and its change are still
// those of was; to NoMember takes it away. It may be repeated.
func (m *MySQL) ChangeBroadcast(ctx context.Context, id member.ID, was Broadcast, to BroadcastState) error {
	statement, args := `UPDATE broadcast_members SET state = ?, changed_at = `+mysql.Now, []any{to}
	if to == NoMember {
		statement, args = `DELETE FROM broadcast_members`, nil
	}
	args = append(args, id, was.State, was.Change)
	_, err := m.db.ExecContext(ctx, statement+` WHERE member_id = ? AND state = ? AND change_id = ?`, args...)
	return mysql.Translate(ctx, fmt.Sprintf("changing the state of broadcast member %d", id), err)
}

// VisiblePhotosAnd is [MySQL.VisiblePhotos], which also returns those of others that v calls a contact, at the
// same instant: for each of them it reads a row by its key.
func (m *MySQL) VisiblePhotosAnd(ctx context.Context, v Viewer, owner member.ID, limit int, others []member.ID) (Album, []member.ID, error) {
	type row struct {
		owner Profile
		photo Photo
		other bool
	}
	what := fmt.Sprintf("reading the photos of member %d visible to member %d, and %d relations", owner, v.ID, len(others))
	scan := func(rows *sql.Rows, r *row) error {
		return rows.Scan((*number)(&r.owner.ID), &r.owner.Username, (*number)(&r.photo.ID), &r.photo.Title, (*number)(&r.photo.DateUpload), &r.other)
	}
	statement := VisiblePhotosStatement(v, owner, limit)
	rows, err := collect(ctx, m.prepared, what, scan, visiblePhotosAndText, append(statement.Args, idList(others), v.ID)...)
	if err != nil {
		return Album{}, nil, err
	}
	var album Album
	var related []member.ID
	for _, r := range rows {
		if r.other {
			related = append(related, r.owner.ID)
			continue
		}
		album.Contact = &r.owner
		album.Photos = append(album.Photos, r.photo)
	}
	slices.SortFunc(album.Photos, byDateDesc) // a UNION promises no order
	return album, related, nil
}

var visiblePhotosAndText = `
(` + visiblePhotosWith(", 0") + `)
UNION ALL
(SELECT c.contact_id, '', 0, '', 0, 1
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = q.id)`
