package recent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = admit.ErrBusy

// Source is where an answer came from.
type Source string

// The sources of an answer. Both are live and private; they differ in cost.
const (
	FromIndex    Source = "index"    // the index said where to look, MySQL what to show
	FromDatabase Source = "database" // a walk through the viewer's contacts in MySQL
)

// Answer is what a viewer is shown, and how it was found.
type Answer struct {
	contacts.Album

	Source Source
	Trace  Trace
}

// Index proposes where to look.
type Index interface {
	// Candidates returns the viewer's set, highest score first. After [index.ErrMissing]
	// and [index.ErrMalformed] a refill helps; after [index.ErrUnknown] the set is deleted
	// soon, and is missing then. With [index.ErrBehind] there are entries, too: a read walks if a
	// walk is free, and otherwise goes by the entries.
	Candidates(ctx context.Context, viewer member.ID) ([]index.Entry, error)
}

// Store decides what may be shown. Its methods fail with [contacts.ErrNoMember]
// when the viewer does not exist, except VisiblePhotos and Look, which find no photos.
type Store interface {
	Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error)
	Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error)
	VisiblePhotos(ctx context.Context, v contacts.Viewer, owner member.ID, limit int) (contacts.Album, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	// Details is for [Reader.Explain] only.
	Details(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Detail, error)
}

// Hints takes what a read found the index to lack. Its methods return at once; a hint may
// be lost, because the next read repeats it.
type Hints interface {
	Refill(viewer member.ID)
	LookAgain(viewer, contact member.ID)
}

// Options configure a [Reader].
type Options struct {
	Min         int           // the index's Min: a smaller set is complete; default 10
	IndexWait   time.Duration // how long a read waits for Redis before it walks; default 250 ms
	WalkTimeout time.Duration // how long a walk may take; default 10 s
	// Uncounted: the reads are not those of viewers. They have no metrics, and go by sets that are
	// behind.
	Uncounted bool
}

// Reader finds the photos of the contact that was active last. It is safe for
// concurrent use.
type Reader struct {
	index   Index
	store   Store
	hints   Hints
	options Options
	walks   shared[walkKey, contacts.Walked]
}

type walkKey struct {
	viewer contacts.Viewer
	limit  int
}

// NewReader returns a reader over the given parts.
func NewReader(ix Index, store Store, hints Hints, o Options) *Reader {
	o.Min = cmp.Or(o.Min, 10)
	o.IndexWait = cmp.Or(o.IndexWait, 250*time.Millisecond)
	o.WalkTimeout = cmp.Or(o.WalkTimeout, 10*time.Second)
	return &Reader{index: ix, store: store, hints: hints, options: o}
}

// Read returns the limit newest visible photos of v's most recently active
// contact. It fails with [contacts.ErrNoMember] when v does not exist,
// [mysql.ErrUnavailable] when MySQL cannot be reached, and [ErrBusy] when too much is under way for a walk
// that it turned out to need. It does not fail when Redis does. The place that ctx has is left.
func (r *Reader) Read(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	start := time.Now()
	a, err := r.read(ctx, v, limit)
	if !r.options.Uncounted {
		count(a, err, time.Since(start))
	}
	return a, err
}

func (r *Reader) read(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	rd := &reading{Reader: r, viewer: v, limit: limit, place: admit.PlaceOf(ctx)}
	defer rd.place.Leave(false)
	var album contacts.Album
	why, err := rd.candidates(ctx)
	if err == nil && why == "" {
		album, why, err = rd.narrow(ctx)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("recent photos for %s: %w", v.ID, err)
	}
	if why != "" {
		return rd.walk(ctx, why)
	}
	rd.place.Leave(rd.trace.Proof == ByNext)
	return Answer{Album: album, Source: FromIndex, Trace: rd.trace}, nil
}

// reading is one read under way.
type reading struct {
	*Reader
	viewer contacts.Viewer
	limit  int
	set    []index.Entry // highest score first, not empty
	trace  Trace
	place  *admit.Place
}

// timed records how long one step takes: defer rd.timed("name")().
func (rd *reading) timed(name string) func() {
	start := time.Now()
	return func() { rd.trace.Steps = append(rd.trace.Steps, Step{Name: name, Took: time.Since(start)}) }
}

// walk answers by a walk. It fails at once with [ErrBusy] when there is no room for it.
func (rd *reading) walk(ctx context.Context, why Reason) (Answer, error) {
	rd.trace.WalkReason = why
	walked, err := rd.sharedWalk(ctx)
	if err != nil {
		return Answer{}, fmt.Errorf("walk for %s (%s): %w", rd.viewer.ID, why, err)
	}
	switch {
	case !walked.Indexable && why == SetMissing:
		rd.trace.WalkReason = NoContacts
	case walked.Indexable && (why == SetMissing || why == SetMalformed):
		rd.hints.Refill(rd.viewer.ID)
	}
	rd.trace.Walk = walked.Trace
	album := rd.proven(walked.Album, ByWalk, walked.Trace.Bound)
	return Answer{Album: album, Source: FromDatabase, Trace: rd.trace}, nil
}

// sharedWalk walks, or waits for the walk of other reads of the same: after Redis was
// emptied many requests for one viewer cost one walk.
func (rd *reading) sharedWalk(ctx context.Context) (contacts.Walked, error) {
	if !rd.place.Walk() {
		return contacts.Walked{}, ErrBusy
	}
	defer rd.timed("walk")()
	return rd.walks.do(ctx, rd.options.WalkTimeout, walkKey{rd.viewer, rd.limit}, func(ctx context.Context) (contacts.Walked, error) {
		walksInFlight.Inc()
		defer walksInFlight.Dec()
		return rd.store.Walk(ctx, rd.viewer, rd.limit)
	})
}
