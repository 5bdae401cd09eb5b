package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// LastUploads returns when each of ids last uploaded, in unix seconds. Members
// that never uploaded or do not exist are absent from the result.
func (m *MySQL) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	found := make(map[member.ID]uint64, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	what := fmt.Sprintf("reading the last uploads of %d members", len(ids))
	rows, err := collect(ctx, m.db, what, lastUploads(ids), scanContact)
	if err != nil {
		return nil, err
	}
	for _, c := range rows {
		found[c.ID] = c.LastUpload
	}
	return found, nil
}

func lastUploads(ids []member.ID) statement {
	return statement{`
SELECT u.id, u.last_upload
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users u ON u.id = q.id
WHERE u.last_upload > 0`, []any{idList(ids)}}
}

// Relations returns, for each pair that is a row of contacts now, the contact's
// last upload in unix seconds: 0 if it never uploaded. Pairs that are no contacts
// are absent from the result, and so are those whose contact is no member any
// more, as in [MySQL.Standings]. It is one statement, however many pairs there
// are.
func (m *MySQL) Relations(ctx context.Context, pairs []Pair) (map[Pair]uint64, error) {
	found := make(map[Pair]uint64, len(pairs))
	if len(pairs) == 0 {
		return found, nil
	}
	type relation struct {
		pair       Pair
		lastUpload uint64
	}
	what := fmt.Sprintf("reading %d relations", len(pairs))
	rows, err := collect(ctx, m.db, what, relations(pairs), func(rows *sql.Rows, r *relation) error {
		return rows.Scan((*number)(&r.pair.User), (*number)(&r.pair.Contact), (*number)(&r.lastUpload))
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		found[r.pair] = r.lastUpload
	}
	return found, nil
}

func relations(pairs []Pair) statement {
	list := make([][2]uint64, len(pairs))
	for i, p := range pairs {
		list[i] = [2]uint64{uint64(p.User), uint64(p.Contact)}
	}
	return statement{`
SELECT c.user_id, c.contact_id, COALESCE(u.last_upload, 0)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
  user_id BIGINT UNSIGNED PATH '$[0]', contact_id BIGINT UNSIGNED PATH '$[1]')) AS q
STRAIGHT_JOIN contacts c ON c.user_id = q.user_id AND c.contact_id = q.contact_id
STRAIGHT_JOIN users u ON u.id = c.contact_id`, []any{mustJSON(list)}}
}

// ContactsByRecency returns up to limit contacts of user that ever uploaded and
// are not among exclude, those that come after the cursor in the order by last
// upload, then id, both descending. A user who does not exist has none.
//
// It reads all contacts of user, and keeps the limit best of them.
func (m *MySQL) ContactsByRecency(
	ctx context.Context, user member.ID, exclude []member.ID, after Cursor, limit int,
) ([]Contact, error) {
	return contactsByRecency(ctx, m.db, user, exclude, after, limit)
}

func contactsByRecency(
	ctx context.Context, q querier, user member.ID, exclude []member.ID, after Cursor, limit int,
) ([]Contact, error) {
	if limit <= 0 {
		return nil, nil
	}
	what := fmt.Sprintf("reading the most recent contacts of member %d", user)
	return collect(ctx, q, what, byRecency(user, exclude, after, limit), scanContact)
}

func byRecency(user member.ID, exclude []member.ID, after Cursor, limit int) statement {
	var text strings.Builder
	args := []any{user}
	// STRAIGHT_JOIN: beginning with users would read the whole site.
	text.WriteString(`
SELECT u.id, u.last_upload
FROM contacts c
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE c.user_id = ? AND u.last_upload > 0`)
	if after != (Cursor{}) {
		text.WriteString(` AND (u.last_upload < ? OR (u.last_upload = ? AND u.id < ?))`)
		args = append(args, after.LastUpload, after.LastUpload, after.ID)
	}
	if len(exclude) > 0 {
		text.WriteString(` AND u.id NOT IN (?` + strings.Repeat(`,?`, len(exclude)-1) + `)`)
		for _, id := range exclude {
			args = append(args, id)
		}
	}
	text.WriteString(` ORDER BY u.last_upload DESC, u.id DESC LIMIT ?`)
	return statement{text.String(), append(args, limit)}
}

// TopContacts returns for each of users what [MySQL.ContactsByRecency] returns
// without exclusions from the start: the limit contacts that uploaded last.
// Users without any are absent from the result, and so are those who are no members,
// even if rows of contacts are left of them. It takes one statement for every
// 128 users, and is sent all their contacts.
func (m *MySQL) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]Contact, error) {
	top := make(map[member.ID][]Contact, len(users))
	if limit <= 0 {
		return top, nil
	}
	// Twice the same user would be given its contacts twice.
	unique := slices.Compact(slices.Sorted(slices.Values(users)))
	for some := range slices.Chunk(unique, mostTops) {
		if err := m.topOf(ctx, some, limit, top); err != nil {
			return nil, err
		}
	}
	return top, nil
}

// mostTops bounds the members in one statement about the contacts of each: more
// would spare next to nothing, and make it a long one where they have many.
const mostTops = 128

func (m *MySQL) topOf(ctx context.Context, users []member.ID, limit int, top map[member.ID][]Contact) error {
	lists := make(map[member.ID]*shortlist, len(users))
	for _, user := range users {
		lists[user] = &shortlist{limit: limit}
	}
	what := fmt.Sprintf("reading the most recent contacts of %d members", len(users))
	var user member.ID // outside, as they escape
	var c Contact
	err := each(ctx, m.prepared, what, topContacts(users), func(rows *sql.Rows) error {
		if err := rows.Scan((*number)(&user), (*number)(&c.ID), (*number)(&c.LastUpload)); err != nil {
			return err
		}
		lists[user].add(c)
		return nil
	})
	if err != nil {
		return err
	}
	for user, list := range lists {
		if best := list.best(); len(best) > 0 {
			top[user] = best
		}
	}
	return nil
}

// topContacts yields all contacts of each of users, in any order. The best are
// picked by us. For a member of some dozens that is less work for the server than
// to sort them by a branch of a UNION, and for one of 100,000 as much; a window
// function is dearer for both, and keeps all of them in temporary tables, as does
// the UNION those of one member.
func topContacts(users []member.ID) statement {
	return statement{`
SELECT q.id, u.id, u.last_upload
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users v ON v.id = q.id
STRAIGHT_JOIN contacts c ON c.user_id = v.id
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE u.last_upload > 0`, []any{idList(users)}}
}

// shortlist keeps the limit most recent of the contacts that it is shown. It never
// holds more than twice as many.
type shortlist struct {
	limit int
	list  []Contact
	full  bool // the first limit of list are in order, and only what comes before the last of them matters
}

func (s *shortlist) add(c Contact) {
	if s.full && byRecencyDesc(s.list[s.limit-1], c) < 0 {
		return
	}
	s.list = append(s.list, c)
	if len(s.list)-s.limit == s.limit {
		s.list, s.full = s.best(), true
	}
}

// best returns the best so far, most recent first.
func (s *shortlist) best() []Contact {
	slices.SortFunc(s.list, byRecencyDesc)
	return s.list[:min(s.limit, len(s.list))]
}
