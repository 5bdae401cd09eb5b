package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Relations returns, for each pair that is a row of contacts now, the contact's
// last upload in unix seconds: 0 if it never uploaded. Pairs that are no contacts
// are absent from the result, and so are pairs whose contact is no member any
// more, as in [MySQL.Compare]. It is a single statement, however many pairs there
// are.
func (m *MySQL) Relations(ctx context.Context, pairs []Pair) (map[Pair]uint64, error) {
	if len(pairs) == 0 {
		return map[Pair]uint64{}, nil
	}
	list := make([][2]uint64, len(pairs))
	for i, p := range pairs {
		list[i] = [2]uint64{uint64(p.User), uint64(p.Contact)}
	}
	scan := func(rows *sql.Rows, p *Pair, lastUpload *uint64) error {
		return rows.Scan((*number)(&p.User), (*number)(&p.Contact), (*number)(lastUpload))
	}
	return collectMap(ctx, m.db, fmt.Sprintf("reading %d relations", len(pairs)), scan, `
SELECT c.user_id, c.contact_id, COALESCE(u.last_upload, 0)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
  user_id BIGINT UNSIGNED PATH '$[0]', contact_id BIGINT UNSIGNED PATH '$[1]')) AS q
STRAIGHT_JOIN contacts c ON c.user_id = q.user_id AND c.contact_id = q.contact_id
STRAIGHT_JOIN users u ON u.id = c.contact_id`, mustJSON(list))
}

// maxTops bounds the members in a statement about the contacts of each: more save
// next to nothing, and make it long where they have many contacts.
const maxTops = 128

// TopContacts returns for each of ids the limit contacts that uploaded last, by last
// upload, then id, both descending. Contacts that never uploaded are left out. Members
// without any are absent from the result, and so are ids that are no members, even if
// rows of contacts are left of them. It takes a statement for every 128 members, and
// is sent all their contacts.
func (m *MySQL) TopContacts(ctx context.Context, ids []member.ID, limit int) (map[member.ID][]Contact, error) {
	top := make(map[member.ID][]Contact, len(ids))
	if limit <= 0 {
		return top, nil
	}
	// An id that is there twice would get its contacts twice.
	unique := slices.Compact(slices.Sorted(slices.Values(ids)))
	for some := range slices.Chunk(unique, maxTops) {
		if err := m.topOf(ctx, some, limit, top); err != nil {
			return nil, err
		}
	}
	return top, nil
}

// topOf reads all contacts of each of ids, in any order, and keeps the most
// recent. For a member with some dozens that is less work for the server than to sort
// them in a branch of a UNION, and for a member with 100,000 as much; a window function costs
// more for both, and keeps all of them in temporary tables, as the UNION does with the contacts of
// a single member.
func (m *MySQL) topOf(ctx context.Context, ids []member.ID, limit int, top map[member.ID][]Contact) error {
	what := fmt.Sprintf("reading the most recent contacts of %d members", len(ids))
	var id member.ID // outside, as they escape
	var c Contact
	err := each(ctx, m.prepared, what, func(rows *sql.Rows) error {
		if err := rows.Scan((*number)(&id), (*number)(&c.ID), (*number)(&c.LastUpload)); err != nil {
			return err
		}
		if top[id] = append(top[id], c); len(top[id]) >= max(2*limit, 64) {
			top[id] = mostRecent(top[id], limit)
		}
		return nil
	}, `
SELECT q.id, u.id, u.last_upload
FROM `+idTable+` AS q
STRAIGHT_JOIN users v ON v.id = q.id
STRAIGHT_JOIN contacts c ON c.user_id = v.id
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE u.last_upload > 0`, idList(ids))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if list := top[id]; len(list) > 0 {
			top[id] = mostRecent(list, limit)
		}
	}
	return nil
}

// mostRecent returns the limit most recent of list, most recent first, in its place.
func mostRecent(list []Contact, limit int) []Contact {
	SortByRecency(list)
	return list[:min(limit, len(list))]
}

// FollowerPage names a page of the followers of a member, above an id.
type FollowerPage struct {
	Of    member.ID
	After member.ID
}

// maxPages bounds the branches of a UNION: parsing and planning grow with them, and
// beyond some dozens a round trip less is worth little.
const maxPages = 64

// FollowerPages returns, for each of pages in order, up to limit members that have Of
// as a contact and ids above After, ascending. Begin with 0 and continue with
// the last id received; an empty page is the end. It takes a statement for every 64
// pages.
func (m *MySQL) FollowerPages(ctx context.Context, pages []FollowerPage, limit int) ([][]member.ID, error) {
	return m.followerPages(ctx, pages, limit, nil)
}

// FanOutPages is [MySQL.FollowerPages], where the pages of a broadcast member that does not leave are empty, and not
// read. It also returns the broadcast members among the members, and whether they leave, at the instant of their
// pages; of a member whose pages are in several statements, at the instant of any of the statements.
func (m *MySQL) FanOutPages(ctx context.Context, pages []FollowerPage, limit int) (found [][]member.ID, leaving map[member.ID]bool, err error) {
	leaving = make(map[member.ID]bool)
	found, err = m.followerPages(ctx, pages, limit, leaving)
	return found, leaving, err
}

// followerPages reads pages; with leaving, pages of a fan-out.
func (m *MySQL) followerPages(ctx context.Context, pages []FollowerPage, limit int, leaving map[member.ID]bool) ([][]member.ID, error) {
	if limit <= 0 {
		return make([][]member.ID, len(pages)), nil
	}
	found := make([][]member.ID, 0, len(pages))
	for some := range slices.Chunk(pages, maxPages) {
		list, err := m.readPages(ctx, some, limit, leaving)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return found, nil
}

// Two ways to read a page of followers. MariaDB's optimizer prefers, for a single contact,
// a scan of all its followers, and steps over the rows before the page: 20 million rows
// for the 300 pages of 300,000 followers. With the index forced it reads each row once.
// A view has no index to force, nor need a site's own table have an index of that name;
// there a second value that no member has makes a range of it, which reads 2.3 rows
// for each.
//
// No other statement of this package names an index: each reads a row by a unique
// key, all contacts of a member, or the first entries of an index that serves both
// condition and order. TestPlansAndCosts holds them to it.
const (
	fromFollowers   = "FROM contacts FORCE INDEX (followers)\nWHERE contact_id = ? AND user_id > ?%s\nORDER BY user_id"
	fromAnyContacts = "FROM contacts\nWHERE contact_id IN (?, 0) AND user_id > ?%s\nORDER BY contact_id, user_id"
	// A server that takes a table of ours for empty reads all of it, unless the key is named.
	notBroadcast = "\nAND NOT EXISTS (SELECT 1 FROM broadcast_members FORCE INDEX (PRIMARY) WHERE member_id = ? AND leaving_at IS NULL)"
)

func (m *MySQL) readPages(ctx context.Context, pages []FollowerPage, limit int, leaving map[member.ID]bool) ([][]member.ID, error) {
	if !m.unhinted.Load() {
		found, err := m.readPagesFrom(ctx, pages, limit, fromFollowers, leaving)
		if !mysql.IsNoSuchKey(err) {
			return found, err
		}
		m.unhinted.Store(true)
	}
	return m.readPagesFrom(ctx, pages, limit, fromAnyContacts, leaving)
}

// The kinds of row of readPagesFrom.
const (
	followerRow = iota
	broadcastRow
	leavingRow
)

func (m *MySQL) readPagesFrom(
	ctx context.Context, pages []FollowerPage, limit int, from string, leaving map[member.ID]bool,
) ([][]member.ID, error) {
	branches := make([]string, len(pages), len(pages)+1)
	args := make([]any, 0, 5*len(pages))
	for i, p := range pages {
		args = append(args, p.Of, p.After)
		condition := ""
		if leaving != nil {
			condition = notBroadcast
			args = append(args, p.Of)
		}
		branches[i] = fmt.Sprintf("\n(SELECT %d, user_id, 0 "+from+" LIMIT ?)", i, condition)
		args = append(args, limit)
	}
	if leaving != nil {
		branches = append(branches, "\n(SELECT 0, member_id, IF(leaving_at IS NULL, 1, 2) FROM broadcast_members FORCE INDEX (PRIMARY)"+
			" WHERE member_id IN (?"+strings.Repeat(", ?", len(pages)-1)+"))")
		for _, p := range pages {
			args = append(args, p.Of)
		}
	}
	found := make([][]member.ID, len(pages))
	var page number // outside, as they escape
	var id member.ID
	var kind int
	what := fmt.Sprintf("reading the followers of %d members", len(pages))
	err := each(ctx, m.db, what, func(rows *sql.Rows) error {
		if err := rows.Scan(&page, (*number)(&id), &kind); err != nil {
			return err
		}
		if kind == followerRow {
			found[page] = append(found[page], id)
		} else {
			leaving[id] = kind == leavingRow
		}
		return nil
	}, strings.Join(branches, "\nUNION ALL"), args...)
	if err != nil {
		return nil, err
	}
	for _, list := range found { // a UNION promises no order for its whole
		slices.Sort(list)
	}
	return found, nil
}
