package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
)

// Relations returns, for each pair that is a row of contacts now, the contact's
// last upload in unix seconds: 0 if it never uploaded. Pairs that are no contacts
// are absent from the result, and so are those whose contact is no member any
// more, as in [MySQL.Standings]. It is one statement, however many pairs there
// are.
func (m *MySQL) Relations(ctx context.Context, pairs []Pair) (map[Pair]uint64, error) {
	if len(pairs) == 0 {
		return map[Pair]uint64{}, nil
	}
	what := fmt.Sprintf("reading %d relations", len(pairs))
	return collectMap(ctx, m.db, what, relations(pairs), func(rows *sql.Rows, p *Pair, lastUpload *uint64) error {
		return rows.Scan((*number)(&p.User), (*number)(&p.Contact), (*number)(lastUpload))
	})
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

// TopContacts returns for each of users the limit contacts that uploaded last, by last
// upload, then id, both descending. Contacts that never uploaded are left out. Users
// without any are absent from the result, and so are those that are no members, even if
// rows of contacts are left of them. It takes one statement for every 128 users, and is
// sent all their contacts.
func (m *MySQL) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]Contact, error) {
	top := make(map[member.ID][]Contact, len(users))
	if limit <= 0 {
		return top, nil
	}
	// Twice the same user would be given its contacts twice.
	unique := slices.Compact(slices.Sorted(slices.Values(users)))
	for some := range slices.Chunk(unique, maxTops) {
		if err := m.topOf(ctx, some, limit, top); err != nil {
			return nil, err
		}
	}
	return top, nil
}

// maxTops bounds the members in one statement about the contacts of each: more save
// next to nothing, and make it a long one where they have many contacts.
const maxTops = 128

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

// topContacts reads all contacts of each of users, in any order; shortlist picks the
// best. For a member with some dozens that is less work for the server than to sort them
// in a branch of a UNION, and for one with 100,000 as much; a window function costs more
// for both, and keeps all of them in temporary tables, as the UNION does those of one
// member.
func topContacts(users []member.ID) statement {
	return statement{`
SELECT q.id, u.id, u.last_upload
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users v ON v.id = q.id
STRAIGHT_JOIN contacts c ON c.user_id = v.id
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE u.last_upload > 0`, []any{idList(users)}}
}

// shortlist keeps the limit most recent of the contacts that are added. It holds at most
// twice as many.
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
