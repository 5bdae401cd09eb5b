package contacts

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// chunking is how many contacts the statements of a walk look at: the first, the factor to the next, and the most.
type chunking struct{ first, growth, most int }

// defaultChunking: the first statement is nearly always enough, as most uploads are
// visible to most followers. The bound also bounds what is read for nothing after the
// answer was found.
var defaultChunking = chunking{first: 32, growth: 8, most: 512}

// Walk returns the answer for v by its definition: of all visible photos of all
// contacts the newest, by date then id, decides the contact; shown are that
// contact's limit newest visible photos. It returns [ErrNoMember] if v does not
// exist.
//
// It runs in a read-only transaction, so that the answer is of a single
// instant. It reads all contacts of v, and looks at them by last upload until no further contact can
// have a newer photo. If none of them ever uploaded, a single statement says so.
func (m *MySQL) Walk(ctx context.Context, v Viewer, limit int) (Walked, error) {
	if some, err := hasUploaders(ctx, m.db, v); err != nil || !some {
		return Walked{Trace: WalkTrace{Statements: 1}}, err
	}
	// Repeatable read makes the statements share a snapshot; a server's
	// default may be another level.
	snapshot := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	tx, err := m.db.BeginTx(ctx, snapshot)
	if err != nil {
		return Walked{}, mysql.Translate(ctx, fmt.Sprintf("walking through the contacts of member %d", v.ID), err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	walked, err := walk(ctx, tx, m.chunks, v, limit)
	walked.Trace.Statements++
	return walked, err
}

// hasUploaders reports whether v has a contact that ever uploaded.
func hasUploaders(ctx context.Context, q querier, v Viewer) (bool, error) {
	scan := func(rows *sql.Rows, some *bool) error { return rows.Scan(some) }
	found, err := collect(ctx, q, fmt.Sprintf("looking for contacts of member %d that uploaded", v.ID), scan, `
SELECT EXISTS (SELECT 1 FROM contacts c STRAIGHT_JOIN users u ON u.id = c.contact_id WHERE c.user_id = ? AND u.last_upload > 0)
FROM users v WHERE v.id = ?`, v.ID, v.ID)
	if err == nil && len(found) == 0 {
		return false, noMember(v.ID)
	}
	return len(found) > 0 && found[0], err
}

// walk is [MySQL.Walk] in a transaction that is under way.
func walk(ctx context.Context, q querier, chunks chunking, v Viewer, limit int) (walked Walked, err error) {
	top := make(map[member.ID][]Contact)
	if err := topOf(ctx, q, []member.ID{v.ID}, everything, top); err != nil {
		return Walked{}, err
	}
	left := top[v.ID]
	walked.Indexable, walked.Trace.Statements = len(left) > 0, 1
	if !walked.Indexable {
		return walked, requireMember(ctx, q, v.ID)
	}
	var best *Standing // the owner of the newest visible photo so far
	for size := chunks.first; len(left) > 0; size = min(size*chunks.growth, chunks.most) {
		// Neither the next contact nor any after it can have a newer photo. Not so within the same second: there the
		// photo's id decides.
		if best != nil && best.Newest.DateUpload > left[0].LastUpload {
			walked.Trace.Bound = left[0].LastUpload
			break
		}
		some := left[:min(size, len(left))]
		left = left[len(some):]
		found, err := compare(ctx, q, v, idsOf(some), noBroadcasts)
		if err != nil {
			return Walked{}, err
		}
		walked.Trace.Statements, walked.Trace.LookedAt = walked.Trace.Statements+1, walked.Trace.LookedAt+len(some)
		for _, s := range found.Standings {
			if s.Newest != nil && (best == nil || s.Newest.Newer(*best.Newest)) {
				best = &s
			}
		}
	}
	if best == nil {
		return walked, nil
	}
	shown, err := look(ctx, q, v, best.Owner, limit, noBroadcasts)
	if err != nil {
		return Walked{}, err
	}
	walked.Album, walked.Trace.Statements = shown.Album, walked.Trace.Statements+1
	return walked, nil
}

const (
	// noBroadcasts is a bound above all uploads: a walk looks at broadcast members as at all contacts.
	noBroadcasts = math.MaxInt64
	// everything is a limit above all numbers of contacts.
	everything = math.MaxInt32
)

func idsOf(list []Contact) []member.ID {
	ids := make([]member.ID, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids
}

// sortByRecency sorts by last upload, then id, both descending.
func sortByRecency(list []Contact) {
	slices.SortFunc(list, func(a, b Contact) int {
		return cmp.Or(cmp.Compare(b.LastUpload, a.LastUpload), cmp.Compare(b.ID, a.ID))
	})
}
