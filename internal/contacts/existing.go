package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Existing returns those of ids that are members. It is one statement, however
// many there are.
func (m *MySQL) Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error) {
	found := make(map[member.ID]bool, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	what := fmt.Sprintf("looking up %d members", len(ids))
	rows, err := collect(ctx, m.db, what, existing(ids), func(rows *sql.Rows, id *member.ID) error { return rows.Scan(id) })
	if err != nil {
		return nil, err
	}
	for _, id := range rows {
		found[id] = true
	}
	return found, nil
}

func existing(ids []member.ID) statement {
	return statement{`
SELECT u.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS q
STRAIGHT_JOIN users u ON u.id = q.id`, []any{idList(ids)}}
}

// Existing does what [MySQL.Existing] does.
func (m *Memory) Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error) {
	if err := ended(ctx, "looking up members"); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make(map[member.ID]bool, len(ids))
	for _, id := range ids {
		if _, ok := m.users[id]; ok {
			found[id] = true
		}
	}
	return found, nil
}
