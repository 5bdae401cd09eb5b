package contacts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
)

// Snapshot answers as [MySQL] does, in a transaction of its caller: with REPEATABLE READ all
// answers are of the same instant. It is not safe for concurrent use.
type Snapshot struct{ tx *sql.Tx }

// NewSnapshot returns a snapshot over a transaction that the caller ends.
func NewSnapshot(tx *sql.Tx) Snapshot { return Snapshot{tx} }

// Walk is [MySQL.Walk].
func (s Snapshot) Walk(ctx context.Context, v Viewer, limit int) (Walked, error) {
	return walk(ctx, s.tx, defaultChunking, v, limit)
}

// Sightings returns the sighting of each of photos, in their order. It returns [ErrNoMember] if v does
// not exist.
func (s Snapshot) Sightings(ctx context.Context, v Viewer, photos []uint64) ([]Sighting, error) {
	return sightings(ctx, s.tx, v, photos)
}

// Sighting is why a viewer is shown a photo, or is not. Much of it the viewer must not know: it is
// for operators.
type Sighting struct {
	Photo      uint64
	Owner      member.ID // 0: no photo has the id
	DateUpload uint64    // unix seconds
	LastUpload uint64    // the owner's, in unix seconds; 0: never uploaded
	// Hidden is why the read must not show the photo: "deleted" (it or its owner), "block", "relation" (its owner is no
	// contact of the viewer) or "visibility". It is empty if the read may show it.
	Hidden string
	// Doubt is why a site may hide it nevertheless: "visibility" (it is not public), "relation" (its owner does not call
	// the viewer a contact), or else "condition": the tables have no reason.
	Doubt string
}

func sightings(ctx context.Context, q querier, v Viewer, photos []uint64) ([]Sighting, error) {
	if len(photos) == 0 {
		return nil, requireMember(ctx, q, v.ID)
	}
	what := fmt.Sprintf("reading why member %d is shown %d photos, or is not", v.ID, len(photos))
	rows, err := collect(ctx, q, what, scanSighting, sightingsText, mustJSON(photos), v.ID)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, noMember(v.ID)
	}
	return inOrder(photos, rows, func(s Sighting) uint64 { return s.Photo }), nil
}

// sightingsText yields a row for every photo, unless the viewer does not exist: then none.
var sightingsText = `
SELECT q.photo, ` + IfFound("x.id", "x.owner_id", "0") + `, ` + IfFound("x.id", "x.date_upload", "0") + `, ` + IfFound("o.id", "o.last_upload", "0") + `,
  CASE WHEN NOT ` + Found("o.id") + ` THEN 'deleted'
    WHEN ` + Found("h.user_id") + ` OR ` + Found("k.user_id") + ` THEN 'block'
    WHEN NOT ` + Found("f.user_id") + ` THEN 'relation'
    WHEN x.visibility = _ascii'` + string(Private) + `' OR NOT ` + Sight + ` THEN 'visibility' ELSE '' END,
  CASE WHEN ` + Found("x.id") + ` AND x.visibility <> _ascii'` + string(Public) + `' THEN 'visibility'
    WHEN NOT ` + Found("g.user_id") + ` THEN 'relation' ELSE 'condition' END
FROM users v
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (photo BIGINT UNSIGNED PATH '$')) AS q` + SightJoins("q.photo") + `
WHERE v.id = ?`

func scanSighting(rows *sql.Rows, s *Sighting) error {
	return rows.Scan((*number)(&s.Photo), (*number)(&s.Owner), (*number)(&s.DateUpload), (*number)(&s.LastUpload), &s.Hidden, &s.Doubt)
}
