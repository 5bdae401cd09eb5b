package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Detail is everything about how one owner stands with one viewer. Much of it the viewer
// must not know: it is for operators.
type Detail struct {
	Standing // as [MySQL.Standings] has it

	IsMember   bool // the owner has a users row; else nothing below is known
	Username   string
	LastUpload uint64 // unix seconds; 0: never uploaded
	Blocks     bool   // the owner blocks the viewer
	Friend     bool   // the owner calls the viewer a friend
	Family     bool   // the owner calls the viewer family
	// Hidden is the owner's newest photo that the viewer may not see, its title
	// left out; nil when there is none.
	Hidden *HiddenPhoto
}

// HiddenPhoto is a photo that a viewer may not see, and to whom it is shown.
type HiddenPhoto struct {
	Photo

	Visibility Visibility
}

// Details returns the details of each of owners and v, in the order of owners, contact or
// not. All are read at one instant. It returns [ErrNoMember] if v does not exist.
func (m *MySQL) Details(ctx context.Context, v Viewer, owners []member.ID) ([]Detail, error) {
	if len(owners) == 0 {
		return nil, requireMember(ctx, m.db, v.ID)
	}
	what := fmt.Sprintf("reading how %d members stand with member %d", len(owners), v.ID)
	rows, err := collect(ctx, m.db, what, detailsOf(v, owners), scanDetail)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, noMember(v.ID)
	}
	return inOrder(owners, rows, func(d Detail) member.ID { return d.Owner }), nil
}

// classes is the order of the visibility classes in [detailsOf].
var classes = []Visibility{Public, Friends, Family, FriendsFamily, Private}

// detailsOf is [standingsOf] for operators: the newest photo of every class, and whether
// the viewer may see that class.
func detailsOf(v Viewer, owners []member.ID) statement {
	return statement{`
SELECT d.id, d.is_contact, d.is_member, d.username, d.last_upload, d.blocks, d.friend, d.family,
  pub.id, pub.date_upload, d.is_contact AND NOT d.blocks,
  fri.id, fri.date_upload, d.is_contact AND NOT d.blocks AND d.friend,
  fam.id, fam.date_upload, d.is_contact AND NOT d.blocks AND d.family,
  ff.id, ff.date_upload, d.is_contact AND NOT d.blocks AND (d.friend OR d.family),
  pri.id, pri.date_upload, FALSE
FROM (
  SELECT q.id, o.id IS NOT NULL AS is_member, o.id IS NOT NULL AND c.user_id IS NOT NULL AS is_contact,
    COALESCE(o.username, '') AS username, COALESCE(o.last_upload, 0) AS last_upload, b.user_id IS NOT NULL AS blocks,
    COALESCE(g.is_friend <> 0, FALSE) AS friend, COALESCE(g.is_family <> 0, FALSE) AS family,
    (SELECT x.id FROM photos x WHERE x.owner_id = o.id AND x.visibility = _ascii'public'` + newestFirst + ` LIMIT 1) AS pub_id,
    (SELECT x.id FROM photos x WHERE x.owner_id = o.id AND x.visibility = _ascii'friends'` + newestFirst + ` LIMIT 1) AS fri_id,
    (SELECT x.id FROM photos x WHERE x.owner_id = o.id AND x.visibility = _ascii'family'` + newestFirst + ` LIMIT 1) AS fam_id,
    (SELECT x.id FROM photos x WHERE x.owner_id = o.id AND x.visibility = _ascii'friends_family'` + newestFirst + ` LIMIT 1) AS ff_id,
    (SELECT x.id FROM photos x WHERE x.owner_id = o.id AND x.visibility = _ascii'private'` + newestFirst + ` LIMIT 1) AS pri_id
  FROM users v
  STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
  LEFT JOIN users o ON o.id = q.id
  LEFT JOIN contacts c ON c.user_id = v.id AND c.contact_id = q.id
  LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = v.id
  LEFT JOIN blocks b ON b.user_id = o.id AND b.blocked_id = v.id
  WHERE v.id = ?
) d
LEFT JOIN photos pub ON pub.id = d.pub_id
LEFT JOIN photos fri ON fri.id = d.fri_id
LEFT JOIN photos fam ON fam.id = d.fam_id
LEFT JOIN photos ff ON ff.id = d.ff_id
LEFT JOIN photos pri ON pri.id = d.pri_id`, []any{idList(owners), v.ID}}
}

// scanDetail sorts the newest of each class into the visible and the hidden.
func scanDetail(rows *sql.Rows, d *Detail) error {
	id, date := make([]sql.Null[uint64], len(classes)), make([]sql.Null[uint64], len(classes))
	shown := make([]bool, len(classes))
	dest := []any{&d.Owner, &d.IsContact, &d.IsMember, &d.Username, &d.LastUpload, &d.Blocks, &d.Friend, &d.Family}
	for i := range classes {
		dest = append(dest, &id[i], &date[i], &shown[i])
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	for i, class := range classes {
		if !id[i].Valid {
			continue
		}
		if p := (Photo{ID: id[i].V, DateUpload: date[i].V}); shown[i] {
			d.consider(p)
		} else {
			d.hide(HiddenPhoto{p, class})
		}
	}
	return nil
}

// hide makes p the newest hidden photo if it is newer than the one known so far.
func (d *Detail) hide(p HiddenPhoto) {
	if d.Hidden == nil || p.Newer(d.Hidden.Photo) {
		d.Hidden = &p
	}
}
