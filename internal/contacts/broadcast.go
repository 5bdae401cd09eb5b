package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

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

// Broadcast is a row of broadcast_members; the zero value: there is none.
type Broadcast struct {
	State  BroadcastState
	Change uint64 // what the last change to [Joining] or [Leaving] is called
	Named  bool   // by an operator
}

// NewChange returns a number that no other change has. It is exact in JSON everywhere.
func NewChange() uint64 { return 1 + rand.Uint64N(1<<52) }

// MaxBroadcasts is how many broadcast members there may be.
const MaxBroadcasts = 10_000

// Broadcasts returns those of ids that are broadcast members. It is one statement, however many there are. It names the key, because a
// server that takes the table for empty reads all of it otherwise.
func (m *MySQL) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]Broadcast, error) {
	if len(ids) == 0 {
		return map[member.ID]Broadcast{}, nil
	}
	scan := func(rows *sql.Rows, id *member.ID, b *Broadcast) error {
		return rows.Scan((*number)(id), &b.State, (*number)(&b.Change), &b.Named)
	}
	return collectMap(ctx, m.prepared, fmt.Sprintf("looking up %d broadcast members", len(ids)), scan, `
SELECT b.member_id, b.state, b.change_id, b.named
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN broadcast_members b FORCE INDEX (PRIMARY) ON b.member_id = q.id`, idList(ids))
}

// AnyBroadcast reports whether there are broadcast members, in whatever state.
func (m *MySQL) AnyBroadcast(ctx context.Context) (bool, error) { return anyBroadcast(ctx, m.prepared) }

func anyBroadcast(ctx context.Context, q querier) (bool, error) {
	found, err := collect(ctx, q, "looking for broadcast members", scanID, `SELECT member_id FROM broadcast_members LIMIT 1`)
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
SELECT COALESCE(u.id, 0), `+IfFound("u.id", "u.last_upload", "0")+`
FROM broadcast_members b
LEFT JOIN users u ON u.id = b.member_id`)
	return slices.DeleteFunc(list, func(c Contact) bool { return c.ID == 0 }), some, err
}

// ChangeBroadcast changes a row of broadcast_members, provided that its state and its change are still those of
// was; the zero Broadcast stands for no row. No row is made for what is no member, nor beyond [MaxBroadcasts].
// It may be repeated.
func (m *MySQL) ChangeBroadcast(ctx context.Context, id member.ID, was, to Broadcast) error {
	var statement string
	var args []any
	switch {
	case was == Broadcast{}:
		statement, args = `
INSERT IGNORE INTO broadcast_members (member_id, state, change_id, named)
SELECT u.id, ?, ?, ? FROM users u
WHERE u.id = ? AND (SELECT COUNT(*) FROM broadcast_members) < ?`, []any{to.State, to.Change, to.Named, id, MaxBroadcasts}
	case to == Broadcast{}:
		statement, args = `
DELETE FROM broadcast_members WHERE member_id = ? AND state = ? AND change_id = ?`, []any{id, was.State, was.Change}
	default:
		statement, args = `
UPDATE broadcast_members SET state = ?, change_id = ?, changed_at = `+mysql.Now+`
WHERE member_id = ? AND state = ? AND change_id = ?`, []any{to.State, to.Change, id, was.State, was.Change}
	}
	_, err := m.db.ExecContext(ctx, statement, args...)
	return mysql.Translate(ctx, fmt.Sprintf("changing the state of broadcast member %d", id), err)
}

// HasFollowers reports whether a member has n followers or more. It reads n rows at most.
func (m *MySQL) HasFollowers(ctx context.Context, id member.ID, n int) (bool, error) {
	if n <= 0 {
		return true, nil
	}
	found, err := collect(ctx, m.prepared, fmt.Sprintf("looking whether member %d has %d followers", id, n), scanID, `
SELECT user_id FROM contacts WHERE contact_id = ? ORDER BY user_id LIMIT 1 OFFSET ?`, id, n-1)
	return len(found) > 0, err
}

// VisiblePhotosAnd is [MySQL.VisiblePhotos], which also returns those of others that v calls a contact, at the
// same instant: for each of them it reads a row by its key.
func (m *MySQL) VisiblePhotosAnd(ctx context.Context, v Viewer, owner member.ID, limit int, others []member.ID) (Album, []member.ID, error) {
	return visiblePhotosAnd(ctx, m.prepared, v, owner, limit, others)
}

func visiblePhotosAnd(ctx context.Context, q querier, v Viewer, owner member.ID, limit int, others []member.ID) (Album, []member.ID, error) {
	type row struct {
		owner Profile
		photo Photo
		other bool
	}
	what := fmt.Sprintf("reading the photos of member %d visible to member %d, and %d relations", owner, v.ID, len(others))
	scan := func(rows *sql.Rows, r *row) error {
		return rows.Scan((*number)(&r.owner.ID), &r.owner.Username, (*number)(&r.photo.ID), &r.photo.Title, (*number)(&r.photo.DateUpload), &r.other)
	}
	args, text := VisiblePhotosStatement(v, owner, limit).Args, visiblePhotosAndMany
	if len(others) < len(visiblePhotosAndPoints) {
		text = visiblePhotosAndPoints[len(others)]
		for _, other := range others {
			args = append(args, v.ID, other)
		}
	} else {
		args = append(args, idList(others), v.ID)
	}
	rows, err := collect(ctx, q, what, scan, text, args...)
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

// The statements of [MySQL.VisiblePhotosAnd]. JSON_TABLE is a table that the server makes for each statement, and costs as
// much as about three branches that read a row of contacts by its key.
var (
	visiblePhotosAndPoints = func() (texts [3]string) {
		for n := range texts {
			texts[n] = "(" + visiblePhotosWith(", 0") + ")" + strings.Repeat(`
UNION ALL
(SELECT c.contact_id, '', 0, '', 0, 1 FROM contacts c WHERE c.user_id = ? AND c.contact_id = ?)`, n)
		}
		return texts
	}()
	visiblePhotosAndMany = `
(` + visiblePhotosWith(", 0") + `)
UNION ALL
(SELECT c.contact_id, '', 0, '', 0, 1
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = q.id)`
)
