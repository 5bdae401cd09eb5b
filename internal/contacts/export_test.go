package contacts

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// WithChunks returns a store whose walks look at one contact first, and at most at so many at once, so that small
// worlds make walks of many statements.
func (m *MySQL) WithChunks(most int) *MySQL {
	return &MySQL{db: m.db, prepared: m.prepared, chunks: chunking{first: 1, growth: 2, most: most}}
}

// WithPause returns a store over the same pool that tries to prepare statements
// again so long after the server refused.
func (m *MySQL) WithPause(d time.Duration) *MySQL {
	p := mysql.NewPrepared(m.db)
	p.Pause = d
	return &MySQL{db: m.db, prepared: p, chunks: m.chunks}
}

// Aliases are the names of the newest photo of each class in statements: of the classes that not only the owner
// may see, and of the rest.
func Aliases() (ofShown, ofOthers []string) {
	for _, c := range classes {
		if c.granted != never {
			ofShown = append(ofShown, c.alias)
		} else {
			ofOthers = append(ofOthers, c.alias)
		}
	}
	return ofShown, ofOthers
}

// Number is the type into which numbers are scanned.
type Number = number

// Sightings is [Snapshot.Sightings].
func (m *MySQL) Sightings(ctx context.Context, v Viewer, photos []uint64) ([]Sighting, error) {
	return sightings(ctx, m.db, v, photos)
}

// Photos is the album of a look.
func Photos(ctx context.Context, s interface {
	Look(ctx context.Context, v Viewer, owner member.ID, limit int, bound uint64) (Look, error)
}, v Viewer, owner member.ID, limit int,
) (Album, error) {
	l, err := s.Look(ctx, v, owner, limit, noBroadcasts)
	return l.Album, err
}

// Standings are the standings of a comparison of owners alone.
func Standings(ctx context.Context, s interface {
	Compare(ctx context.Context, v Viewer, owners []member.ID, bound uint64) (Comparison, error)
}, v Viewer, owners []member.ID,
) ([]Standing, error) {
	c, err := s.Compare(ctx, v, owners, noBroadcasts)
	return c.Standings, err
}
