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

// FollowerPage names a page of followers: those of one member, above an id.
type FollowerPage struct {
	Of    member.ID
	After member.ID
}

// mostPerUnion bounds the branches of one UNION: parsing and planning grow with
// them, and beyond some dozens there is no round trip left worth saving.
const mostPerUnion = 64

// Followers returns up to limit members who call of a contact, those with ids
// above after, ascending. Begin with 0 and go on with the last id received; an
// empty result is the end.
func (m *MySQL) Followers(ctx context.Context, of, after member.ID, limit int) ([]member.ID, error) {
	pages, err := m.FollowerPages(ctx, []FollowerPage{{of, after}}, limit)
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

// FollowerPages returns, for each of pages in order, what [MySQL.Followers]
// returns. It takes one statement for every 64 pages.
func (m *MySQL) FollowerPages(ctx context.Context, pages []FollowerPage, limit int) ([][]member.ID, error) {
	found := make([][]member.ID, len(pages))
	if limit <= 0 {
		return found, nil
	}
	first := 0
	for some := range slices.Chunk(pages, mostPerUnion) {
		if err := m.readPages(ctx, some, limit, found[first:first+len(some)]); err != nil {
			return nil, err
		}
		first += len(some)
	}
	return found, nil
}

func (m *MySQL) readPages(ctx context.Context, pages []FollowerPage, limit int, found [][]member.ID) error {
	type row struct {
		page     number
		follower member.ID
	}
	what := fmt.Sprintf("reading the followers of %d members", len(pages))
	read := func(from string) ([]row, error) {
		return collect(ctx, m.db, what, followerPages(pages, limit, from), func(rows *sql.Rows, r *row) error {
			return rows.Scan(&r.page, (*number)(&r.follower))
		})
	}
	from := fromFollowers
	if m.unhinted.Load() {
		from = fromAnyContacts
	}
	rows, err := read(from)
	if mysql.IsNoSuchKey(err) {
		m.unhinted.Store(true)
		rows, err = read(fromAnyContacts)
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		found[r.page] = append(found[r.page], r.follower)
	}
	for _, page := range found { // a UNION promises no order for its whole
		slices.Sort(page)
	}
	return nil
}

// The two ways to a page of followers. MariaDB's optimizer prefers, for one contact,
// a scan of all its followers, and steps over those before the page: 20 million rows
// for the 300 pages of 300,000 followers. Told the index it reads each row once. A
// view has no index to be told, nor need a site's own table have one of that name;
// there a second value that nobody has makes a range of it, which is read 2.3 times.
const (
	fromFollowers   = "FROM contacts FORCE INDEX (followers)\nWHERE contact_id = ? AND user_id > ?\nORDER BY user_id"
	fromAnyContacts = "FROM contacts\nWHERE contact_id IN (?, 0) AND user_id > ?\nORDER BY contact_id, user_id"
)

func followerPages(pages []FollowerPage, limit int, from string) statement {
	branches := make([]string, len(pages))
	args := make([]any, 0, 3*len(pages))
	for i, p := range pages {
		branches[i] = fmt.Sprintf("\n(SELECT %d, user_id %s LIMIT ?)", i, from)
		args = append(args, p.Of, p.After, limit)
	}
	return statement{strings.Join(branches, "\nUNION ALL"), args}
}

// FollowerPages does what [MySQL.FollowerPages] does.
func (m *Memory) FollowerPages(ctx context.Context, pages []FollowerPage, limit int) ([][]member.ID, error) {
	found := make([][]member.ID, len(pages))
	for i, p := range pages {
		var err error
		if found[i], err = m.Followers(ctx, p.Of, p.After, limit); err != nil {
			return nil, err
		}
	}
	return found, nil
}
