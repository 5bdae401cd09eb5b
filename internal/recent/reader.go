package recent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Index proposes where to look.
type Index interface {
	// Candidates returns the viewer's set, highest score first, and broadcast members. After [index.ErrMissing]
	// and [index.ErrMalformed] a refill helps; after [index.ErrUnknown] the set is deleted
	// soon, and is missing then. With [index.ErrBehind] there are entries, too: reads walk while
	// walks are free, for half of WalkTimeout, and otherwise go by the entries.
	Candidates(ctx context.Context, viewer member.ID) ([]index.Entry, index.Copy, error)
}

// Store decides what may be shown. Its methods fail with [contacts.ErrNoMember]
// when the viewer does not exist, except VisiblePhotos and VisiblePhotosAnd, which find nothing.
type Store interface {
	VisiblePhotos(ctx context.Context, v contacts.Viewer, owner member.ID, limit int) (contacts.Album, error)
	// VisiblePhotosAnd also returns which of others are contacts, at the same instant.
	VisiblePhotosAnd(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, others []member.ID) (contacts.Album, []member.ID, error)
	// AnyBroadcast reports whether there are broadcast members.
	AnyBroadcast(ctx context.Context) (bool, error)
	Standings(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Standing, error)
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
	// Late returns for how long the process itself was late since a time, as [admit.Lateness] does: a
	// reply of Redis that is late because of that does not become a walk. Default: it never was.
	Late func(since time.Time) time.Duration
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
	none    atomic.Int64 // when MySQL was asked last that had no broadcast members, in nanoseconds since made; 0: never
	made    time.Time
	fans    *[1 << 14]atomic.Uint64 // viewers, see [reading.isFan]; nil: none is remembered
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
	if o.Late == nil {
		o.Late = func(time.Time) time.Duration { return 0 }
	}
	r := &Reader{index: ix, store: store, hints: hints, options: o, made: time.Now()}
	if !o.Uncounted { // else it is for one read, or a few
		r.fans = new([1 << 14]atomic.Uint64)
	}
	return r
}

// Read returns the limit newest visible photos of v's most recently active
// contact. It fails with [contacts.ErrNoMember] when v does not exist,
// [mysql.ErrUnavailable] when MySQL cannot be reached, and [ErrBusy] when too much is under way for a walk
// that it turned out to need, or for it to go on after it has waited for Redis. It does not fail when Redis does. The place that ctx has is left.
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
	err := rd.candidates(ctx)
	if err == nil {
		err = rd.merge(ctx)
	}
	if err == nil && rd.isBehind && !r.options.Uncounted {
		half, cancel := context.WithTimeout(ctx, r.options.WalkTimeout/2)
		defer cancel() // half, because WalkTimeout may be all the time that ctx has
		a, err := rd.walk(half, &unprovenError{reason: WritesRefused})
		gaveUp := errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded)
		if !gaveUp || ctx.Err() != nil {
			return a, err
		}
		rd.trace.WalkReason = ""
	}
	var album contacts.Album
	if err == nil {
		album, err = rd.narrow(ctx)
	}
	if unproven, ok := errors.AsType[*unprovenError](err); ok {
		return rd.walk(ctx, unproven)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("recent photos for %s: %w", v.ID, err)
	}
	rd.remember()
	rd.place.Leave(rd.trace.Proof == ByNext)
	return Answer{Album: album, Source: FromIndex, Trace: rd.trace}, nil
}

// unprovenError ends the narrow read: a walk is needed.
type unprovenError struct {
	reason string
	refill bool      // the set is missing or malformed: a refill would help the next read
	mend   member.ID // likewise the copy of the broadcast set; 0: none
}

func (e *unprovenError) Error() string { return e.reason }

// reading is one read under way.
type reading struct {
	*Reader
	viewer    contacts.Viewer
	limit     int
	set       []index.Entry // highest score first
	broadcast index.Copy
	isBehind  bool          // there may be others: see [index.ErrBehind]
	entries   []index.Entry // the candidates, highest score first: those of set, and broadcast members
	complete  bool          // all contacts that ever uploaded are candidates
	asked     time.Time     // when the set and the broadcast set were read first
	trace     Trace
	place     admit.Place
}

// timed records how long one step takes: defer rd.timed("name")().
func (rd *reading) timed(name string) func() {
	start := time.Now()
	return func() { rd.trace.Steps = append(rd.trace.Steps, Step{Name: name, Took: time.Since(start)}) }
}

// walk answers by a walk, which corrects the verdicts on candidates. It fails at once with
// [ErrBusy] when there is no room for it.
func (rd *reading) walk(ctx context.Context, why *unprovenError) (Answer, error) {
	rd.trace.WalkReason = why.reason
	walked, err := rd.sharedWalk(ctx)
	if err != nil {
		return Answer{}, fmt.Errorf("walk for %s (%s): %w", rd.viewer.ID, why.reason, err)
	}
	if !walked.Indexable {
		rd.trace.WalkReason = NoContacts
	} else if why.refill {
		rd.hints.Refill(rd.viewer.ID)
	}
	if why.mend != 0 {
		rd.hints.Refill(why.mend)
	}
	rd.trace.Walk, rd.trace.Proof = walked.Trace, ByWalk
	for i, c := range rd.trace.Candidates {
		switch {
		case walked.Contact != nil && c.Contact == walked.Contact.ID:
			rd.examined(i, &walked.Photos[0], Chosen)
		case c.Verdict == Chosen:
			rd.examined(i, nil, Older)
		}
	}
	return Answer{Album: walked.Album, Source: FromDatabase, Trace: rd.trace}, nil
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
