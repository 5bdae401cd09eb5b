package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// newestFirst orders the photos x of an owner in a class, newest first. It
// names the whole key newest, although the first two columns are the same in all
// of the photos: in a dependent subquery MySQL (9.7) sorts all of them
// otherwise, to find one. MariaDB reads the key from its end either way, unless the
// class is compared with a literal of the column's character set and another
// collation: it sorts then. So the classes are ASCII literals, which take the
// collation of the column, whatever that is.
const newestFirst = " ORDER BY x.owner_id DESC, x.visibility DESC, x.date_upload DESC, x.id DESC"

// newestIn is a subquery: a column of the newest photo of owner o in a class.
func newestIn(c class, column string) string {
	return "(SELECT x." + column + " FROM photos x WHERE x.owner_id = o.id AND " + c.is() + newestFirst + " LIMIT 1)"
}

// visiblePhotosText reads each visibility class on its own from the key newest, so that
// it touches at most limit photos of each, however many the owner has that the viewer may
// not see. Its last column is photoRow.
var visiblePhotosText = `
SELECT o.id, o.username, p.id, p.title, p.date_upload, 0
FROM contacts c
JOIN users v ON v.id = c.user_id
JOIN users o ON o.id = c.contact_id
LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = v.id
LEFT JOIN blocks k ON k.user_id = v.id AND k.blocked_id = o.id
JOIN (` + eachOf(shown, "\n  UNION ALL", func(c class) string {
	from, granted := "photos x WHERE ", ""
	if c.granted != always {
		from, granted = "contacts g JOIN photos x WHERE g.user_id = ? AND g.contact_id = ? AND ", c.granted+" AND "
	}
	return `
  (SELECT x.id, x.title, x.date_upload FROM ` + from + granted + `x.owner_id = ? AND ` + c.is() + newestFirst + ` LIMIT ?)`
}) + `
) p
WHERE c.user_id = ? AND c.contact_id = ? AND NOT ` + Found("b.user_id") + ` AND NOT ` + Found("k.user_id") + `
ORDER BY p.date_upload DESC, p.id DESC LIMIT ?`

// visiblePhotosArgs are the arguments of visiblePhotosText.
func visiblePhotosArgs(v Viewer, owner member.ID, limit int) []any {
	var at, viewer, most any = owner, v.ID, limit // as each conversion allocates
	args := make([]any, 0, 4*len(shown)+6)        // with room for three more
	for _, c := range shown {
		if c.granted != always {
			args = append(args, at, viewer)
		}
		args = append(args, at, most)
	}
	return append(args, viewer, at, most)
}

// standingsText yields a row for every owner, contact or not, unless the viewer
// does not exist: then none. The owners are the members of a list and the broadcast members that the viewer calls
// contacts and that uploaded after a bound. Each class's newest photo is a step into the key
// newest; the outer joins fetch the dates by primary key.
var standingsText = `
SELECT d.id, d.is_contact, d.last_upload` + eachOf(shown, "", func(c class) string {
	return ", " + c.alias + ".id, " + c.alias + ".date_upload"
}) + `
FROM (
  SELECT q.id, ` + Found("o.id") + ` AS is_contact, q.last_upload` + eachOf(shown, "", func(c class) string {
	return `,
    CASE WHEN ` + Found("o.id") + ` AND ` + c.granted + ` AND NOT ` + Found("b.user_id") + ` AND NOT ` + Found("k.user_id") + ` THEN ` + newestIn(c, "id") + ` END AS ` + c.alias + `_id`
}) + `
  FROM users v
  STRAIGHT_JOIN (
    SELECT j.id, 0 AS last_upload FROM ` + idTable + ` AS j
    UNION ALL
    (SELECT m.member_id, m.last_upload
    FROM broadcast_members m FORCE INDEX (newest)
    STRAIGHT_JOIN contacts c ON c.user_id = ? AND c.contact_id = m.member_id
    WHERE m.last_upload > ?
    ORDER BY m.last_upload DESC, m.member_id DESC LIMIT ?)
  ) AS q
  LEFT JOIN contacts c ON c.user_id = v.id AND c.contact_id = q.id
  LEFT JOIN users o ON o.id = c.contact_id
  LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = v.id
  LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = v.id
  LEFT JOIN blocks k ON k.user_id = v.id AND k.blocked_id = o.id
  WHERE v.id = ?
) d` + eachOf(shown, "", joinNewest)

// joinNewest joins the newest photo of a class to d by the id that d has.
func joinNewest(c class) string {
	return `
LEFT JOIN photos ` + c.alias + ` ON ` + c.alias + `.id = d.` + c.alias + `_id`
}

// inOrder returns the row of each of owners, in their order: SQL promises none.
func inOrder[K comparable, T any](owners []K, rows []T, ownerOf func(T) K) []T {
	byOwner := make(map[K]T, len(rows))
	for _, row := range rows {
		byOwner[ownerOf(row)] = row
	}
	ordered := make([]T, len(owners))
	for i, owner := range owners {
		ordered[i] = byOwner[owner]
	}
	return ordered
}

// newestPhoto is the columns of the newest photo of a class; NULL: there is none.
type newestPhoto struct{ id, date sql.Null[number] }

func (p newestPhoto) photo() Photo { return Photo{ID: uint64(p.id.V), DateUpload: uint64(p.date.V)} }

// scanStanding takes the newest of the classes that were visible.
func scanStanding(rows *sql.Rows, s *Standing, lastUpload *uint64) error {
	newest := make([]newestPhoto, len(shown))
	dest := []any{(*number)(&s.Owner), &s.IsContact, (*number)(lastUpload)}
	for i := range newest {
		dest = append(dest, &newest[i].id, &newest[i].date)
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	for _, p := range newest {
		if p.id.Valid {
			s.consider(p.photo())
		}
	}
	return nil
}

// consider makes p the newest photo if it is newer than the newest so far.
func (s *Standing) consider(p Photo) {
	if s.Newest == nil || p.Newer(*s.Newest) {
		s.Newest = &p
	}
}

// Detail is everything about how an owner stands with a viewer. Much of it the viewer
// must not know: it is for operators.
type Detail struct {
	Standing // as [MySQL.Compare] has it

	IsMember   bool   `json:"is_member"` // the owner has a users row; else nothing below is known
	Username   string `json:"username"`
	LastUpload uint64 `json:"last_upload"`   // unix seconds; 0: never uploaded
	Blocks     bool   `json:"blocks_viewer"` // the owner blocks the viewer
	Blocked    bool   `json:"viewer_blocks"` // the viewer blocks the owner
	Friend     bool   `json:"grants_friend"` // the owner calls the viewer a friend
	Family     bool   `json:"grants_family"` // the owner calls the viewer family
	// Hidden is the owner's newest photo that the viewer may not see, its title
	// left out; nil when there is none.
	Hidden *HiddenPhoto `json:"newest_hidden"`
}

// HiddenPhoto is a photo that a viewer may not see, and the class of viewers that may.
type HiddenPhoto struct {
	Photo

	Visibility Visibility `json:"visibility"`
}

// Details returns the details of each of owners and v, in the order of owners, contact or
// not. All are read at the same instant. It returns [ErrNoMember] if v does not exist.
func (m *MySQL) Details(ctx context.Context, v Viewer, owners []member.ID) ([]Detail, error) {
	return details(ctx, m.db, v, owners)
}

func details(ctx context.Context, q querier, v Viewer, owners []member.ID) ([]Detail, error) {
	if len(owners) == 0 {
		return nil, requireMember(ctx, q, v.ID)
	}
	what := fmt.Sprintf("reading how %d members stand with member %d", len(owners), v.ID)
	rows, err := collect(ctx, q, what, scanDetail, detailsText, idList(owners), v.ID)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, noMember(v.ID)
	}
	return inOrder(owners, rows, func(d Detail) member.ID { return d.Owner }), nil
}

// detailsText is [standingsText] for operators: the newest photo of every class, and whether
// the viewer may see that class.
var detailsText = `
SELECT d.id, d.is_contact, d.is_member, d.username, d.last_upload, d.blocks, d.blocked, d.friend, d.family` + eachOf(classes, "", func(c class) string {
	return `,
  ` + c.alias + `.id, ` + c.alias + `.date_upload, d.is_contact AND NOT d.blocks AND NOT d.blocked AND d.` + c.alias + `_granted`
}) + `
FROM (
  SELECT q.id, ` + Found("o.id") + ` AS is_member, ` + Found("o.id") + ` AND ` + Found("c.user_id") + ` AS is_contact,
    ` + IfFound("o.id", "o.username", "''") + ` AS username, ` + IfFound("o.id", "o.last_upload", "0") + ` AS last_upload,
    ` + Found("b.user_id") + ` AS blocks, ` + Found("k.user_id") + ` AS blocked,
    COALESCE(g.user_id > 0 AND g.is_friend, FALSE) AS friend, COALESCE(g.user_id > 0 AND g.is_family, FALSE) AS family` + eachOf(classes, "", func(c class) string {
	return `,
    ` + newestIn(c, "id") + ` AS ` + c.alias + `_id, COALESCE(` + c.granted + `, FALSE) AS ` + c.alias + `_granted`
}) + `
  FROM users v
  STRAIGHT_JOIN ` + idTable + ` AS q
  LEFT JOIN users o ON o.id = q.id
  LEFT JOIN contacts c ON c.user_id = v.id AND c.contact_id = q.id
  LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = v.id
  LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = v.id
  LEFT JOIN blocks k ON k.user_id = v.id AND k.blocked_id = o.id
  WHERE v.id = ?
) d` + eachOf(classes, "", joinNewest)

// scanDetail sorts the newest of each class into the visible and the hidden.
func scanDetail(rows *sql.Rows, d *Detail) error {
	newest, granted := make([]newestPhoto, len(classes)), make([]bool, len(classes))
	dest := []any{
		(*number)(&d.Owner), &d.IsContact, &d.IsMember, &d.Username, (*number)(&d.LastUpload), &d.Blocks, &d.Blocked, &d.Friend, &d.Family,
	}
	for i := range newest {
		dest = append(dest, &newest[i].id, &newest[i].date, &granted[i])
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	for i, p := range newest {
		switch {
		case !p.id.Valid:
		case granted[i]:
			d.consider(p.photo())
		default:
			d.hide(HiddenPhoto{p.photo(), classes[i].Visibility})
		}
	}
	return nil
}

// hide makes p the newest hidden photo if it is newer than the newest so far.
func (d *Detail) hide(p HiddenPhoto) {
	if d.Hidden == nil || p.Newer(d.Hidden.Photo) {
		d.Hidden = &p
	}
}
