package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// Relations returns, for each pair that is a row of contacts now, the contact's
// last upload in unix seconds: 0 if it never uploaded. Pairs that are no contacts
// are absent from the result, and so are pairs whose contact is no member any
// more, as in [MySQL.Compare]. It is a single statement, however many pairs there
// are.
func (m *MySQL) Relations(ctx context.Context, pairs []Pair) (map[Pair]uint64, error) {
	list := make([][2]uint64, len(pairs))
	for i, p := range pairs {
		list[i] = [2]uint64{uint64(p.User), uint64(p.Contact)}
	}
	scan := func(rows *sql.Rows, p *Pair, lastUpload *uint64) error {
		return rows.Scan((*number)(&p.User), (*number)(&p.Contact), (*number)(lastUpload))
	}
	return lookUp(ctx, m.db, len(pairs), "reading %d relations", scan, `
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
		if err := topOf(ctx, m.prepared, some, limit, top); err != nil {
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
func topOf(ctx context.Context, q querier, ids []member.ID, limit int, top map[member.ID][]Contact) error {
	what := fmt.Sprintf("reading the most recent contacts of %d members", len(ids))
	var id member.ID // outside, as they escape
	var c Contact
	err := each(ctx, q, what, func(rows *sql.Rows) error {
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
	sortByRecency(list)
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
//
// MariaDB's optimizer prefers, for a single contact, a scan of all its followers, and steps over the rows before the
// page: 20 million rows for the 300 pages of 300,000 followers. A second value that no member has, 0, makes a range of it,
// on a table as on a view, whose index has no name. It reads 2.3 rows for each. A site may have rows of 0: a condition that
// the optimizer cannot make part of the range leaves them out, or a page of them would hide the followers behind it.
func (m *MySQL) FollowerPages(ctx context.Context, pages []FollowerPage, limit int) ([][]member.ID, error) {
	found := make([][]member.ID, len(pages))
	for from := 0; from < len(pages) && limit > 0; from += maxPages {
		some := pages[from:min(from+maxPages, len(pages))]
		branches, args := make([]string, len(some)), make([]any, 0, 3*len(some))
		for i, p := range some {
			branches[i] = fmt.Sprintf(`
(SELECT %d, user_id FROM contacts WHERE contact_id IN (?, 0) AND contact_id + 0 > 0 AND user_id > ? ORDER BY contact_id, user_id LIMIT ?)`, from+i)
			args = append(args, p.Of, p.After, limit)
		}
		var page int // outside, as they escape
		var id member.ID
		err := each(ctx, m.db, fmt.Sprintf("reading the followers of %d members", len(some)), func(rows *sql.Rows) error {
			if err := rows.Scan(&page, (*number)(&id)); err != nil {
				return err
			}
			found[page] = append(found[page], id)
			return nil
		}, strings.Join(branches, "\nUNION ALL"), args...)
		if err != nil {
			return nil, err
		}
	}
	for _, list := range found { // a UNION promises no order for its whole
		slices.Sort(list)
	}
	return found, nil
}
