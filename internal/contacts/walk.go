package contacts

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// chunking says how a walk goes through a viewer's contacts.
type chunking struct {
	first        int // so many contacts are looked at first
	growth       int // the factor between one chunk and the next
	perStatement int // owners in one statement at most
}

// defaultChunking: the first chunk is nearly always enough, as most uploads are
// visible to most followers. Reading a chunk costs a pass over all contacts, so
// chunks grow fast enough for the passes to stay few. The bound on a statement
// is also one on what is looked at in vain after the answer was found.
var defaultChunking = chunking{first: 32, growth: 8, perStatement: 512}

// Walk returns the answer for v by its definition: of all visible photos of all
// contacts the newest, by date then id, decides the contact; shown are that
// contact's limit newest visible photos. It returns [ErrNoMember] if v does not
// exist.
//
// It runs in one read-only transaction, so that the answer is that of one
// instant, and goes through the contacts by last upload until no further one can
// have a newer photo. Its cost is a few passes over the contacts of v.
func (m *MySQL) Walk(ctx context.Context, v Viewer, limit int) (Walked, error) {
	s, end, err := m.search(ctx, v, 1)
	if err != nil {
		return Walked{}, err
	}
	defer end()
	return s.answer(ctx, limit)
}

// Ranking returns the limit contacts of v that have the newest visible photos, by
// date then id, both descending; contacts that show v nothing are left out. So it
// tells of nothing but what v may see: not even of when somebody uploaded
// something that v may not. It returns [ErrNoMember] if v does not exist.
//
// It goes through the contacts as [MySQL.Walk] does, until no further one can
// belong in the list: all of them, if fewer than limit show v anything.
func (m *MySQL) Ranking(ctx context.Context, v Viewer, limit int) ([]Standing, error) {
	if limit <= 0 {
		return nil, requireMember(ctx, m.db, v.ID)
	}
	s, end, err := m.search(ctx, v, limit)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if !s.indexable {
		return nil, requireMember(ctx, s.q, v.ID)
	}
	return s.best, nil
}

// search begins a walk for the owners of the most newest visible photos, in a
// snapshot of its own. When it is over, call end.
func (m *MySQL) search(ctx context.Context, v Viewer, most int) (s *search, end func(), err error) {
	// Repeatable read is what makes the statements share a snapshot; a server's
	// default may be another level.
	snapshot := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	tx, err := m.db.BeginTx(ctx, snapshot)
	if err != nil {
		return nil, nil, mysql.Translate(ctx, fmt.Sprintf("walking through the contacts of member %d", v.ID), err)
	}
	s = &search{q: tx, viewer: v, chunks: m.chunks, most: most}
	return s, func() { _ = tx.Rollback() }, nil // it only read: there is nothing to lose
}

// search is a walk under way.
type search struct {
	q         querier
	viewer    Viewer
	chunks    chunking
	most      int        // owners that are wanted
	best      []Standing // those found so far, newest visible photo first
	indexable bool
	trace     WalkTrace
}

func (s *search) answer(ctx context.Context, limit int) (Walked, error) {
	if err := s.run(ctx); err != nil {
		return Walked{}, err
	}
	if !s.indexable { // no statement so far said whether the viewer exists
		s.trace.Statements++
		return Walked{Trace: s.trace}, requireMember(ctx, s.q, s.viewer.ID)
	}
	if len(s.best) == 0 {
		return Walked{Indexable: true, Trace: s.trace}, nil
	}
	s.trace.Statements++
	album, err := visiblePhotos(ctx, s.q, s.viewer, s.best[0].Owner, limit)
	return Walked{Album: album, Indexable: true, Trace: s.trace}, err
}

// run goes through the contacts until the answer is proven or all were seen.
func (s *search) run(ctx context.Context) error {
	var after Cursor
	for size := s.chunks.first; ; size *= s.chunks.growth {
		s.trace.Passes++
		s.trace.Statements++
		chunk, err := contactsByRecency(ctx, s.q, s.viewer.ID, nil, after, size)
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
		after = Cursor{LastUpload: last.LastUpload, ID: last.ID}
	}
}

// examine looks at the contacts of chunk, in order, until the answer is proven.
func (s *search) examine(ctx context.Context, chunk []Contact) (proven bool, err error) {
	for some := range slices.Chunk(chunk, s.chunks.perStatement) {
		if s.beats(some[0]) {
			return true, nil
		}
		s.trace.Statements++
		found, err := standings(ctx, s.q, s.viewer, idsOf(some))
		if err != nil {
			return false, err
		}
		s.trace.LookedAt += len(found)
		for _, st := range found {
			s.consider(st)
		}
	}
	return false, nil
}

// consider gives st its place among the best.
func (s *search) consider(st Standing) {
	if st.Newest == nil {
		return
	}
	at, _ := slices.BinarySearchFunc(s.best, *st.Newest, func(b Standing, p Photo) int { return byDateDesc(*b.Newest, p) })
	if at < s.most {
		s.best = slices.Insert(s.best, at, st)
		s.best = s.best[:min(len(s.best), s.most)]
	}
}

// beats tells whether neither c nor anybody after it can have a newer photo than
// the last of the best. Not so within the same second: there the photo's id
// decides.
func (s *search) beats(c Contact) bool {
	if len(s.best) < s.most || s.best[s.most-1].Newest.DateUpload <= c.LastUpload {
		return false
	}
	s.trace.Bound = c.LastUpload
	return true
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
