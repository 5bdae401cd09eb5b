package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Members returns up to limit ids of members above after, ascending. Begin with 0
// and go on with the last id received; an empty result is the end.
func (m *MySQL) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	if limit <= 0 {
		return nil, nil
	}
	what := fmt.Sprintf("reading the members after %d", after)
	st := statement{`SELECT id FROM users WHERE id > ? ORDER BY id LIMIT ?`, []any{after, limit}}
	return collect(ctx, m.db, what, st, func(rows *sql.Rows, id *member.ID) error { return rows.Scan(id) })
}

// CountMembers returns how many members have ids from first to last. It counts
// them: a second for some millions.
func (m *MySQL) CountMembers(ctx context.Context, first, last member.ID) (n int64, err error) {
	st := statement{`SELECT COUNT(*) FROM users WHERE id >= ? AND id <= ?`, []any{first, last}}
	counts, err := collect(ctx, m.db, "counting the members", st, func(rows *sql.Rows, n *int64) error { return rows.Scan(n) })
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// Existing returns those of ids that are members. It is one statement, however
// many there are.
func (m *MySQL) Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error) {
	if len(ids) == 0 {
		return map[member.ID]bool{}, nil
	}
	what := fmt.Sprintf("looking up %d members", len(ids))
	return collectMap(ctx, m.db, what, existing(ids), func(rows *sql.Rows, id *member.ID, is *bool) error {
		*is = true
		return rows.Scan(id)
	})
}

func existing(ids []member.ID) statement {
	return statement{`
SELECT u.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users u ON u.id = q.id`, []any{idList(ids)}}
}

// LastUploads returns when each of ids last uploaded, in unix seconds. Members
// that never uploaded or do not exist are absent from the result.
func (m *MySQL) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	if len(ids) == 0 {
		return map[member.ID]uint64{}, nil
	}
	what := fmt.Sprintf("reading the last uploads of %d members", len(ids))
	return collectMap(ctx, m.db, what, lastUploads(ids), func(rows *sql.Rows, id *member.ID, at *uint64) error {
		return rows.Scan((*number)(id), (*number)(at))
	})
}

func lastUploads(ids []member.ID) statement {
	return statement{`
SELECT u.id, u.last_upload
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users u ON u.id = q.id
WHERE u.last_upload > 0`, []any{idList(ids)}}
}

// Newest is when a member uploaded last, by both records of it, in unix seconds. The
// site promises that LastUpload is at least Photo.
type Newest struct {
	LastUpload uint64 // of users; 0: never uploaded
	Photo      uint64 // the date of the newest photo that is not private; 0: there is none
}

// Newest returns for each of ids that is a member when it uploaded last. It is one
// statement, however many there are, and reads one index entry of each visibility
// but the private one.
func (m *MySQL) Newest(ctx context.Context, ids []member.ID) (map[member.ID]Newest, error) {
	if len(ids) == 0 {
		return map[member.ID]Newest{}, nil
	}
	what := fmt.Sprintf("reading the newest photos of %d members", len(ids))
	return collectMap(ctx, m.db, what, newestOf(ids), func(rows *sql.Rows, id *member.ID, n *Newest) error {
		return rows.Scan(id, &n.LastUpload, &n.Photo)
	})
}

func newestOf(ids []member.ID) statement {
	return statement{`
SELECT u.id, COALESCE(u.last_upload, 0), GREATEST(
  COALESCE((SELECT x.date_upload FROM photos x WHERE x.owner_id = u.id AND x.visibility = _ascii'public'` + newestFirst + ` LIMIT 1), 0),
  COALESCE((SELECT x.date_upload FROM photos x WHERE x.owner_id = u.id AND x.visibility = _ascii'friends'` + newestFirst + ` LIMIT 1), 0),
  COALESCE((SELECT x.date_upload FROM photos x WHERE x.owner_id = u.id AND x.visibility = _ascii'family'` + newestFirst + ` LIMIT 1), 0),
  COALESCE((SELECT x.date_upload FROM photos x WHERE x.owner_id = u.id AND x.visibility = _ascii'friends_family'` + newestFirst + ` LIMIT 1), 0))
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users u ON u.id = q.id`, []any{idList(ids)}}
}
