package contacts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MaxBroadcasts is how many broadcast members there may be: a read looks at the row of each that uploaded after
// the first of its set.
const MaxBroadcasts = 1000

// maxCompared is how many broadcast contacts a comparison looks at.
const maxCompared = 32

// Errors about broadcast members.
var (
	ErrNoBroadcast       = errors.New("is no broadcast member")
	ErrTooManyBroadcasts = fmt.Errorf("there are %d broadcast members already: remove a member first", MaxBroadcasts)
)

// Broadcast is a row of broadcast_members: a member with so many followers that an upload is written to this row,
// and not to the set of each follower. A read asks for the rows of the viewer's contacts in the statement that it
// sends for photos.
type Broadcast struct {
	ID         member.ID
	LastUpload uint64 // unix seconds, at least the date of each photo that is not private, whose upload task is done and that is not in all sets
	// Leaving is when the member was told to cease, in unix milliseconds of the database; 0: it was not. The uploads
	// of a member that leaves go to the row and to the sets.
	Leaving int64
	Named   bool // by an operator: it ceases by an operator alone
}

// Look is the result of a single statement, at a single instant, about the photos of a member and of broadcast members.
type Look struct {
	Album
	// Above are the broadcast members that the viewer calls contacts and whose last upload is at least a bound: the two
	// with the latest, the latest first.
	Above []Contact
	// Below is the latest upload of a broadcast member, contact or not, before the bound; 0: there is none.
	Below uint64
}

// Comparison is the result of a single statement, at a single instant: how candidates stand with a viewer.
type Comparison struct {
	Standings []Standing // of the candidates, in their order, and then of each of Broadcasts
	// Broadcasts are the broadcast members that the viewer calls contacts, that are not among the candidates and whose
	// last upload is after a bound, the latest first.
	Broadcasts []Contact
	// Beyond is the latest upload of a broadcast contact after the bound that was left out, as there are more than 32; 0: none was.
	Beyond uint64
}

// Look returns the limit newest photos of owner that v may see, by date
// then id, both descending, and the broadcast members about a bound. The album is empty when there are none; when v or
// owner does not exist, or owner is no contact of v, or a block stands between the two, there are none.
func (m *MySQL) Look(ctx context.Context, v Viewer, owner member.ID, limit int, bound uint64) (Look, error) {
	return look(ctx, m.prepared, v, owner, limit, bound)
}

// The kinds of row of lookText.
const (
	photoRow = iota
	aboveRow
	belowRow
)

// lookText reads the key newest of broadcast_members from its latest entry down to the bound, and a row of contacts by
// its key for each. A site without broadcast members pays a look into an empty table.
var lookText = `
(` + visiblePhotosText + `)
UNION ALL
(SELECT c.contact_id, '', 0, '', m.last_upload, 1
FROM broadcast_members m FORCE INDEX (newest)
STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = m.member_id
WHERE m.last_upload >= ?
ORDER BY m.last_upload DESC, m.member_id DESC LIMIT 2)
UNION ALL
(SELECT 0, '', 0, '', COALESCE(MAX(m.last_upload), 0), 2
FROM broadcast_members m FORCE INDEX (newest)
WHERE m.last_upload < ?)`

// Statement is a statement and its arguments, to show the question.
type Statement struct {
	Text string
	Args []any
}

// LookStatement returns the statement of [MySQL.Look].
func LookStatement(v Viewer, owner member.ID, limit int, bound uint64) Statement {
	return Statement{lookText, append(visiblePhotosArgs(v, owner, max(0, limit)), v.ID, bound, bound)}
}

func look(ctx context.Context, q querier, v Viewer, owner member.ID, limit int, bound uint64) (l Look, err error) {
	var who Profile // outside, as they escape
	var p Photo
	var kind int
	columns := []any{(*number)(&who.ID), &who.Username, (*number)(&p.ID), &p.Title, (*number)(&p.DateUpload), &kind}
	statement := LookStatement(v, owner, limit, bound)
	err = each(ctx, q, "reading visible photos and broadcast members", func(rows *sql.Rows) error {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		switch {
		case kind == aboveRow:
			l.Above = append(l.Above, Contact{who.ID, p.DateUpload})
		case kind == belowRow:
			l.Below = p.DateUpload
		case l.Contact == nil:
			l.Contact, l.Photos = &Profile{who.ID, who.Username}, append(make([]Photo, 0, limit), p)
		default:
			l.Photos = append(l.Photos, p)
		}
		return nil
	}, statement.Text, statement.Args...)
	if err != nil {
		return Look{}, err
	}
	slices.SortFunc(l.Photos, byDateDesc) // a UNION promises no order
	sortByRecency(l.Above)
	return l, nil
}

// Compare returns the standing of each of owners with v, and of the broadcast members that v calls contacts and that
// uploaded after a bound. It returns [ErrNoMember] if v does not exist.
func (m *MySQL) Compare(ctx context.Context, v Viewer, owners []member.ID, bound uint64) (Comparison, error) {
	return compare(ctx, m.prepared, v, owners, bound)
}

func compare(ctx context.Context, q querier, v Viewer, owners []member.ID, bound uint64) (c Comparison, err error) {
	standings, uploads := make(map[member.ID]Standing, len(owners)), []Contact(nil)
	what := fmt.Sprintf("comparing what %d contacts and broadcast members show to member %d", len(owners), v.ID)
	var s Standing // outside, as they escape
	var lastUpload uint64
	err = each(ctx, q, what, func(rows *sql.Rows) error {
		s = Standing{}
		err := scanStanding(rows, &s, &lastUpload)
		if standings[s.Owner] = s; lastUpload > 0 {
			uploads = append(uploads, Contact{s.Owner, lastUpload})
		}
		return err
	}, standingsText, idList(owners), v.ID, bound, maxCompared+1, v.ID)
	if err != nil {
		return Comparison{}, err
	}
	if len(standings) == 0 {
		return Comparison{}, requireMember(ctx, q, v.ID)
	}
	sortByRecency(uploads)
	if len(uploads) > maxCompared {
		c.Beyond, uploads = uploads[maxCompared].LastUpload, uploads[:maxCompared]
	}
	for _, id := range owners {
		c.Standings = append(c.Standings, standings[id])
	}
	for _, b := range uploads {
		if !slices.Contains(owners, b.ID) {
			c.Broadcasts, c.Standings = append(c.Broadcasts, b), append(c.Standings, standings[b.ID])
		}
	}
	return c, nil
}

// Broadcasts returns the broadcast members among ids by a single statement. It names the key, because a
// server that takes the table for empty reads all of it otherwise.
func (m *MySQL) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]Broadcast, error) {
	scan := func(rows *sql.Rows, id *member.ID, b *Broadcast) error {
		err := rows.Scan((*number)(id), (*number)(&b.LastUpload), &b.Leaving, &b.Named)
		b.ID = *id
		return err
	}
	return lookUp(ctx, m.prepared, len(ids), "looking up %d broadcast members", scan, `
SELECT b.member_id, b.last_upload, COALESCE(b.leaving_at, 0), b.named
FROM `+idTable+` AS q
STRAIGHT_JOIN broadcast_members b FORCE INDEX (PRIMARY) ON b.member_id = q.id`, idList(ids))
}

// AddBroadcast makes a member a broadcast member whose uploads of today are in its row. For a member that has a row it only
// stores that an operator named it and that it does not leave, if named; else it does nothing. It fails with
// [ErrNoMember] and with [ErrTooManyBroadcasts].
func (m *MySQL) AddBroadcast(ctx context.Context, id member.ID, named bool) error {
	what := fmt.Sprintf("making member %d a broadcast member", id)
	statement := `
INSERT INTO broadcast_members (member_id, last_upload, named)
SELECT u.id, COALESCE(GREATEST(u.last_upload, 0), 0), ? FROM users u
WHERE u.id = ? AND ((SELECT COUNT(*) FROM broadcast_members) < ? OR EXISTS (SELECT 1 FROM broadcast_members WHERE member_id = ?))
ON DUPLICATE KEY UPDATE leaving_at = IF(VALUES(named), NULL, leaving_at), named = broadcast_members.named OR VALUES(named)`
	if _, err := m.db.ExecContext(ctx, statement, named, id, MaxBroadcasts, id); err != nil {
		return mysql.Translate(ctx, what, err)
	}
	found, err := m.Broadcasts(ctx, []member.ID{id})
	if err != nil || len(found) > 0 {
		return err
	}
	if err := requireMember(ctx, m.db, id); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", what, ErrTooManyBroadcasts)
}

// RaiseBroadcast writes an upload to the row of a broadcast member; a late upload changes nothing.
func (m *MySQL) RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error {
	_, err := m.db.ExecContext(ctx, `UPDATE broadcast_members SET last_upload = ? WHERE member_id = ? AND last_upload < ?`, lastUpload, id, lastUpload)
	return mysql.Translate(ctx, fmt.Sprintf("writing the last upload of broadcast member %d", id), err)
}

// LeaveBroadcast has the uploads of a broadcast member go to the sets, too, and returns its row. It may be repeated. It
// fails with [ErrNoBroadcast].
func (m *MySQL) LeaveBroadcast(ctx context.Context, id member.ID) (Broadcast, error) {
	_, err := m.db.ExecContext(ctx, `UPDATE broadcast_members SET leaving_at = `+mysql.Now+` WHERE member_id = ? AND leaving_at IS NULL`, id)
	if err != nil {
		return Broadcast{}, mysql.Translate(ctx, fmt.Sprintf("having broadcast member %d leave", id), err)
	}
	found, err := m.Broadcasts(ctx, []member.ID{id})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("member %d %w", id, ErrNoBroadcast)
	}
	return found[id], err
}

// DeleteBroadcast takes the row of a member away that leaves since a time.
func (m *MySQL) DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error {
	_, err := m.db.ExecContext(ctx, `DELETE FROM broadcast_members WHERE member_id = ? AND leaving_at = ?`, id, leaving)
	return mysql.Translate(ctx, fmt.Sprintf("deleting the row of broadcast member %d", id), err)
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
