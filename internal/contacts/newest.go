package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Newest is when a member uploaded last, twice told, in unix seconds. The site
// promises that LastUpload is at least Photo.
type Newest struct {
	LastUpload uint64 // of users; 0: never uploaded
	Photo      uint64 // the date of the newest photo that is not private; 0: there is none
}

// Newest returns for each of ids that is a member when it uploaded last. It is one
// statement, however many there are, and reads one index entry of each visibility
// but the private one, which nobody is ever shown.
func (m *MySQL) Newest(ctx context.Context, ids []member.ID) (map[member.ID]Newest, error) {
	found := make(map[member.ID]Newest, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	type row struct {
		id member.ID
		Newest
	}
	what := fmt.Sprintf("reading the newest photos of %d members", len(ids))
	rows, err := collect(ctx, m.db, what, newestOf(ids), func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.id, &r.LastUpload, &r.Photo)
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		found[r.id] = r.Newest
	}
	return found, nil
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

// Newest does what [MySQL.Newest] does.
func (m *Memory) Newest(ctx context.Context, ids []member.ID) (map[member.ID]Newest, error) {
	if err := ended(ctx, "reading the newest photos"); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make(map[member.ID]Newest)
	for _, id := range ids {
		if u, isMember := m.users[id]; isMember {
			found[id] = Newest{LastUpload: u.lastUpload, Photo: m.newestPhoto(id)}
		}
	}
	return found, nil
}

// newestPhoto is the date of the owner's newest photo that is not private, or 0.
func (m *Memory) newestPhoto(owner member.ID) (date uint64) {
	for id := range m.owned[owner] {
		if p := m.photos[id]; p.visibility != Private {
			date = max(date, p.DateUpload)
		}
	}
	return date
}
