package contacts

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

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

// Members does what [MySQL.Members] does.
func (m *Memory) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	if err := ended(ctx, "reading members"); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	ids := slices.Sorted(maps.Keys(m.users))
	ids = slices.DeleteFunc(ids, func(id member.ID) bool { return id <= after })
	return first(ids, limit), nil
}

// CountMembers does what [MySQL.CountMembers] does.
func (m *Memory) CountMembers(ctx context.Context, first, last member.ID) (n int64, err error) {
	if err := ended(ctx, "counting members"); err != nil {
		return 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id := range m.users {
		if id >= first && id <= last {
			n++
		}
	}
	return n, nil
}
