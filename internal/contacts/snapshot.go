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
	Photo uint64
	// Shown: the read may show it to the viewer.
	Shown bool

	IsPhoto    bool // it has a row of photos; else nothing below is known
	Owner      member.ID
	DateUpload uint64 // unix seconds
	Visibility Visibility

	IsMember   bool   // the owner has a users row
	LastUpload uint64 // the owner's, in unix seconds; 0: never uploaded
	IsContact  bool   // the viewer calls the owner a contact
	Blocks     bool   // the owner blocks the viewer
	Blocked    bool   // the viewer blocks the owner
	Calls      bool   // the owner calls the viewer a contact
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
SELECT q.photo, ` + Found("f.user_id") + ` AND x.visibility <> _ascii'` + string(Private) + `' AND ` + Sight + `,
  ` + Found("x.id") + `, ` + IfFound("x.id", "x.owner_id", "0") + `, ` + IfFound("x.id", "x.date_upload", "0") + `, ` + IfFound("x.id", "x.visibility", "''") + `,
  ` + Found("o.id") + `, ` + IfFound("o.id", "o.last_upload", "0") + `,
  ` + Found("f.user_id") + `, ` + Found("h.user_id") + `, ` + Found("k.user_id") + `, ` + Found("g.user_id") + `
FROM users v
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (photo BIGINT UNSIGNED PATH '$')) AS q` + SightJoins("q.photo") + `
WHERE v.id = ?`

func scanSighting(rows *sql.Rows, s *Sighting) error {
	var shown sql.NullBool
	err := rows.Scan(
		(*number)(&s.Photo), &shown, &s.IsPhoto, (*number)(&s.Owner), (*number)(&s.DateUpload), &s.Visibility,
		&s.IsMember, (*number)(&s.LastUpload), &s.IsContact, &s.Blocks, &s.Blocked, &s.Calls)
	s.Shown = shown.Bool
	return err
}
