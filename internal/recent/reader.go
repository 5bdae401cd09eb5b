package recent

import (
	"cmp"
	"context"
	"errors"
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
	FromIndex    Source = "index"    // the index said where to look, MySQL whose photos to show
	FromDatabase Source = "database" // a walk through the viewer's contacts in MySQL
)

// Answer is the album that a viewer is shown, and how it was found.
type Answer struct {
	contacts.Album

	Source Source
	Trace  Trace

	set        []index.Entry       // S, highest score first
	broadcasts []contacts.Contact  // among the viewer's contacts
	standings  []contacts.Standing // of a comparison
}

// Index proposes where to look.
type Index interface {
	// Candidates returns the viewer's set, highest score first, within [redisnodes.CallTimeout]. After [index.ErrMissing]
	// and [index.ErrMalformed] a refill helps; after [index.ErrUnknown] the set is deleted soon, and is missing then.
	// With [index.ErrBehind] there are entries, too.
	Candidates(ctx context.Context, viewer member.ID) ([]index.Entry, error)
}

// Store decides what may be shown. Its methods fail with [contacts.ErrNoMember] when the viewer does not exist, but Look
// finds no photos then.
type Store interface {
	Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error)
	Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	// Details is for [Reader.Explain] only.
	Details(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Detail, error)
}

// Hints takes the faults that a read found in the index. Its methods return at once; a hint may be lost, because the
// next read repeats it.
type Hints interface {
	Refill(viewer member.ID)
	LookAgain(viewer, contact member.ID)
}

// Options configure a [Reader].
type Options struct {
	Min     int            // the index's Min: a smaller set is complete; default 10
	Limiter *admit.Limiter // nil: no read is refused
	// Uncounted: the reads are not of viewers. They have no metrics, and go by sets that are behind.
	Uncounted bool
}

// Reader finds the photos of the contact that was active last. It is safe for concurrent use.
type Reader struct {
	index   Index
	store   Store
	hints   Hints
	options Options
}

// NewReader returns a reader over the given parts.
func NewReader(ix Index, store Store, hints Hints, o Options) *Reader {
	o.Min = cmp.Or(o.Min, 10)
	return &Reader{index: ix, store: store, hints: hints, options: o}
}

// Read returns the limit newest visible photos of v's most recently active contact. It fails with [contacts.ErrNoMember]
// when v does not exist, [mysql.ErrUnavailable] when MySQL cannot be reached, and [ErrBusy] when too much is under way
// for it, or for a walk that it turned out to need. It does not fail when Redis does.
func (r *Reader) Read(ctx context.Context, v contacts.Viewer, limit int) (a Answer, err error) {
	place, err := r.options.Limiter.Enter(ctx)
	if err != nil {
		return Answer{}, err // the limiter has counted it
	}
	defer func() { place.Leave(a.Trace.Proof == ByNext) }()
	began := time.Now()
	rd := &reading{Reader: r, viewer: v, limit: limit, place: place}
	why, err := rd.readSet(ctx)
	if err == nil && why == "" {
		why, err = rd.narrow(ctx)
	}
	if rd.Source = FromIndex; err == nil && why != "" {
		rd.Source, rd.Trace.WalkReason = FromDatabase, why
		err = rd.walk(ctx)
	}
	if !r.options.Uncounted {
		count(rd.Answer, err, time.Since(began))
	}
	if err != nil {
		return Answer{}, fmt.Errorf("recent photos for %s: %w", v.ID, err)
	}
	return rd.Answer, nil
}

// reading is a read under way.
type reading struct {
	*Reader
	Answer // so far

	viewer contacts.Viewer
	limit  int
	place  *admit.Place
}

// readSet reads the set. A reason says why it cannot be used; a set that is behind is used where there is no room for a walk.
func (rd *reading) readSet(ctx context.Context) (Reason, error) {
	set, err := rd.index.Candidates(ctx, rd.viewer.ID)
	rd.set = set
	isBehind := errors.Is(err, index.ErrBehind)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case isBehind && !rd.options.Uncounted && rd.place.Walk():
		return WritesRefused, nil
	case (err == nil || isBehind) && len(set) > 0:
		return "", nil
	case err == nil, errors.Is(err, index.ErrMissing):
		return SetMissing, nil
	case errors.Is(err, index.ErrMalformed):
		return SetMalformed, nil
	case errors.Is(err, index.ErrSettings):
		return OtherSettings, nil
	case errors.Is(err, index.ErrUnknown): // a refill would be deleted with the old sets
		return SetUnknown, nil
	}
	return RedisUnavailable, nil
}

// walk answers by a walk. It fails at once with [ErrBusy] when there is no room for it.
func (rd *reading) walk(ctx context.Context) error {
	why := rd.Trace.WalkReason
	if !rd.place.Walk() {
		return ErrBusy
	}
	walked, err := rd.store.Walk(ctx, rd.viewer, rd.limit)
	if err != nil {
		return fmt.Errorf("walk (%s): %w", why, err)
	}
	switch {
	case !walked.Indexable && why == SetMissing:
		rd.Trace.WalkReason = NoContacts
	case walked.Indexable && (why == SetMissing || why == SetMalformed):
		rd.hints.Refill(rd.viewer.ID)
	}
	rd.Trace.Walk = walked.Trace
	rd.prove(walked.Album, ByWalk, walked.Trace.Bound)
	return nil
}
