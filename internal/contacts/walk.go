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

// chunking says how a walk goes through a viewer's contacts.
type chunking struct {
	perPass      int // contacts that the first pass returns
	first        int // owners in the first statement about photos
	growth       int // the factor from one pass to the next, and from a statement about photos to the next
	perStatement int // owners in a statement at most
}

// defaultChunking: the first statement is nearly always enough, as most uploads are
// visible to most followers. A pass over the contacts reads all of them, however many it
// returns: so it returns the contacts of a second statement, too, and passes grow fast
// enough to stay few. The bound on a statement also bounds what is read for nothing after the
// answer was found.
var defaultChunking = chunking{perPass: 32 + 256, first: 32, growth: 8, perStatement: 512}

// Walk returns the answer for v by its definition: of all visible photos of all
// contacts the newest, by date then id, decides the contact; shown are that
// contact's limit newest visible photos. It returns [ErrNoMember] if v does not
// exist.
//
// It runs in a read-only transaction, so that the answer is of a single
// instant, and goes through the contacts by last upload until no further contact can
// have a newer photo. Its cost is a few passes over the contacts of v. If none of them ever uploaded,
// a single statement says so.
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
func walk(ctx context.Context, q querier, chunks chunking, v Viewer, limit int) (Walked, error) {
	s := &search{q: q, viewer: v, chunks: chunks, owners: chunks.first}
	if err := s.run(ctx); err != nil {
		return Walked{}, err
	}
	if !s.indexable { // no statement so far said whether the viewer exists
		s.trace.Statements++
		return Walked{Trace: s.trace}, requireMember(ctx, q, v.ID)
	}
	if s.best == nil {
		return Walked{Indexable: true, Trace: s.trace}, nil
	}
	s.trace.Statements++
	look, err := look(ctx, q, v, s.best.Owner, limit, noBroadcasts)
	return Walked{Album: look.Album, Indexable: true, Trace: s.trace}, err
}

// noBroadcasts is a bound above all uploads: a walk looks at broadcast members as at all contacts.
const noBroadcasts = math.MaxInt64

// search is a walk under way.
type search struct {
	q         querier
	viewer    Viewer
	chunks    chunking
	owners    int       // in the next statement about photos
	best      *Standing // the owner of the newest visible photo so far; nil: none
	indexable bool
	trace     WalkTrace
}

// run goes through the contacts until the answer is proven or all were seen.
func (s *search) run(ctx context.Context) error {
	var after Contact // the last of the chunk before; zero: none
	for size := s.chunks.perPass; ; size *= s.chunks.growth {
		s.trace.Passes++
		s.trace.Statements++
		chunk, err := contactsByRecency(ctx, s.q, s.viewer, after, size)
		if err != nil {
			return err
		}
		s.indexable = s.indexable || len(chunk) > 0
		proven, err := s.examine(ctx, chunk)
		if err != nil || proven || len(chunk) < size {
			return err
		}
		last := chunk[len(chunk)-1]
		if s.beats(last) { // and so all after it: spare the pass
			return nil
		}
		after = last
	}
}

// examine looks at the contacts of chunk, in order, until the answer is proven.
func (s *search) examine(ctx context.Context, chunk []Contact) (proven bool, err error) {
	for len(chunk) > 0 {
		if s.beats(chunk[0]) {
			return true, nil
		}
		some := chunk[:min(s.owners, len(chunk))]
		chunk = chunk[len(some):]
		s.owners = min(s.owners*s.chunks.growth, s.chunks.perStatement)
		s.trace.Statements++
		found, err := compare(ctx, s.q, s.viewer, idsOf(some), noBroadcasts)
		if err != nil {
			return false, err
		}
		s.trace.LookedAt += len(found.Standings)
		for _, st := range found.Standings {
			if st.Newest != nil && (s.best == nil || st.Newest.Newer(*s.best.Newest)) {
				s.best = &st
			}
		}
	}
	return false, nil
}

// beats reports whether neither c nor any contact after it can have a newer photo than the
// best. Not so within the same second: there the photo's id decides.
func (s *search) beats(c Contact) bool {
	if s.best == nil || s.best.Newest.DateUpload <= c.LastUpload {
		return false
	}
	s.trace.Bound = c.LastUpload
	return true
}

// contactsByRecency returns up to limit contacts of v that ever uploaded and
// come after a contact in the order by last upload, then id, both descending; the zero
// Contact comes before the first. It reads all contacts of v, and keeps the best.
func contactsByRecency(ctx context.Context, q querier, v Viewer, after Contact, limit int) ([]Contact, error) {
	var beyond string
	args := []any{v.ID}
	if after != (Contact{}) {
		beyond = ` AND (u.last_upload < ? OR (u.last_upload = ? AND u.id < ?))`
		args = append(args, after.LastUpload, after.LastUpload, after.ID)
	}
	// STRAIGHT_JOIN: beginning with users would read the whole site.
	text := `
SELECT u.id, u.last_upload
FROM contacts c
STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE c.user_id = ? AND u.last_upload > 0` + beyond + ` ORDER BY u.last_upload DESC, u.id DESC LIMIT ?`
	scan := func(rows *sql.Rows, c *Contact) error {
		return rows.Scan((*number)(&c.ID), (*number)(&c.LastUpload))
	}
	what := fmt.Sprintf("reading the most recent contacts of member %d", v.ID)
	return collect(ctx, q, what, scan, text, append(args, limit)...)
}

func idsOf(list []Contact) []member.ID {
	ids := make([]member.ID, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids
}

// byRecencyDesc orders contacts by last upload, then id, both descending.
func byRecencyDesc(a, b Contact) int {
	return cmp.Or(cmp.Compare(b.LastUpload, a.LastUpload), cmp.Compare(b.ID, a.ID))
}

// SortByRecency sorts by last upload, then id, both descending.
func SortByRecency(list []Contact) { slices.SortFunc(list, byRecencyDesc) }
