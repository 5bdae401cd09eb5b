package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// mostPerUnion bounds the branches of one UNION: parsing and planning grow with
// them, and beyond some dozens there is no round trip left worth saving.
const mostPerUnion = 64

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
		return rows.Scan(&r.pair.User, &r.pair.Contact, &r.lastUpload)
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
// Users without any are absent from the result. It takes one statement for every
// 64 users.
func (m *MySQL) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]Contact, error) {
	top := make(map[member.ID][]Contact, len(users))
	if limit <= 0 {
		return top, nil
	}
	// Twice the same user would be given its contacts twice.
	unique := slices.Compact(slices.Sorted(slices.Values(users)))
	for some := range slices.Chunk(unique, mostPerUnion) {
		if err := m.topOf(ctx, some, limit, top); err != nil {
			return nil, err
		}
	}
	return top, nil
}

func (m *MySQL) topOf(ctx context.Context, users []member.ID, limit int, top map[member.ID][]Contact) error {
	type ranked struct {
		user member.ID
		Contact
	}
	what := fmt.Sprintf("reading the most recent contacts of %d members", len(users))
	rows, err := collect(ctx, m.db, what, topContacts(users, limit), func(rows *sql.Rows, r *ranked) error {
		return rows.Scan(&r.user, &r.ID, &r.LastUpload)
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		top[r.user] = append(top[r.user], r.Contact)
	}
	// SQL promises the order inside a branch for its LIMIT only, not for the
	// result of the UNION.
	for _, user := range users {
		slices.SortFunc(top[user], byRecencyDesc)
	}
	return nil
}

func topContacts(users []member.ID, limit int) statement {
	const branch = `
(SELECT c.user_id, u.id, u.last_upload
FROM contacts c
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE c.user_id = ? AND u.last_upload > 0
ORDER BY u.last_upload DESC, u.id DESC LIMIT ?)`
	args := make([]any, 0, 2*len(users))
	for _, user := range users {
		args = append(args, user, limit)
	}
	branches := slices.Repeat([]string{branch}, len(users))
	return statement{strings.Join(branches, "\nUNION ALL"), args}
}
