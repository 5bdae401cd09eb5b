package recent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Index proposes where to look.
type Index interface {
	// Candidates returns a user's set, highest score first. [index.ErrMissing]
	// and [index.ErrMalformed] say that a refill would help.
	Candidates(ctx context.Context, user member.ID) ([]index.Entry, error)
}

// Store decides what may be shown. Its methods fail with [contacts.ErrNoMember]
// when the viewer does not exist, except VisiblePhotos, which finds nothing.
type Store interface {
	VisiblePhotos(ctx context.Context, v contacts.Viewer, owner member.ID, limit int) (contacts.Album, error)
	Standings(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Standing, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	// These two are asked by explanations only.
	Ranking(ctx context.Context, v contacts.Viewer, limit int) ([]contacts.Standing, error)
	Details(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Detail, error)
}

// Hints takes note of where a read found the index behind. The methods return
// at once; a hint may be lost, because the next read gives it again.
type Hints interface {
	Refill(user member.ID)
	LookAgain(user, contact member.ID)
}

// The defaults of [Options].
const (
	DefaultMin         = 10
	DefaultIndexWait   = 250 * time.Millisecond
	DefaultWalks       = 8
	DefaultWalkWait    = time.Second
	DefaultWalkTimeout = 10 * time.Second
)

// Options say how a [Reader] works; the zero value of a field stands for its
// default.
type Options struct {
	Min         int           // the index's Min: a smaller set is complete
	IndexWait   time.Duration // how long a read waits for Redis before it does without
	Walks       int           // walks through the database at once
	WalkWait    time.Duration // how long a walk waits for its turn before [ErrBusy]
	WalkTimeout time.Duration // how long a walk may take
	Uncounted   bool          // reads are not those of members, and not counted with them
	// Stale tells that the sets are not kept up to date, because Redis is known to
	// refuse writes. Reads walk then as far as walks are free, for half of WalkTimeout,
	// and beyond that are answered by way of the index as ever. nil: never.
	Stale func() bool
}

// Reader answers the widget's question. It is safe for concurrent use.
type Reader struct {
	index   Index
	store   Store
	hints   Hints
	options Options
	walking *semaphore.Weighted
	ranking *semaphore.Weighted // explanations: a few, so that they leave the walks to reads
	flights *flights[walkKey, contacts.Walked]
}

type walkKey struct {
	viewer contacts.Viewer
	limit  int
	free   bool // the walk waits for no turn: see [Options.Stale]
}

// NewReader returns a reader over the given parts.
func NewReader(ix Index, store Store, hints Hints, o Options) *Reader {
	o.Min = cmp.Or(o.Min, DefaultMin)
	o.IndexWait = cmp.Or(o.IndexWait, DefaultIndexWait)
	o.Walks = cmp.Or(o.Walks, DefaultWalks)
	o.WalkWait = cmp.Or(o.WalkWait, DefaultWalkWait)
	o.WalkTimeout = cmp.Or(o.WalkTimeout, DefaultWalkTimeout)
	if o.Stale == nil {
		o.Stale = func() bool { return false }
	}
	return &Reader{
		index: ix, store: store, hints: hints, options: o,
		walking: semaphore.NewWeighted(int64(o.Walks)),
		ranking: semaphore.NewWeighted(max(1, int64(o.Walks)/4)),
		flights: newFlights[walkKey, contacts.Walked](),
	}
}

// Read returns the limit newest visible photos of v's most recently active
// contact. It fails with [contacts.ErrNoMember] when v does not exist,
// [mysql.ErrUnavailable] when MySQL cannot be asked, and [ErrBusy] when a
// walk is needed and too many are under way. A failing Redis is no failure.
func (r *Reader) Read(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	start := time.Now()
	a, err := r.read(ctx, v, limit)
	if !r.options.Uncounted {
		count(a, err, time.Since(start))
	}
	return a, err
}

func (r *Reader) read(ctx context.Context, v contacts.Viewer, limit int) (Answer, error) {
	rd := &reading{Reader: r, viewer: v, limit: limit}
	if r.options.Stale() {
		half, cancel := context.WithTimeout(ctx, r.options.WalkTimeout/2)
		defer cancel() // the other half is for the set: WalkTimeout may be all that ctx has
		a, err := rd.walk(half, &unprovenError{reason: WritesRefused}, true)
		if tooDear := errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded); !tooDear || ctx.Err() != nil {
			return a, err
		}
		rd.trace = Trace{Steps: rd.trace.Steps}
	}
	album, err := rd.narrow(ctx)
	var unproven *unprovenError
	switch {
	case err == nil:
		return rd.answer(album, FromIndex), nil
	case errors.As(err, &unproven):
		return rd.walk(ctx, unproven, false)
	}
	return Answer{}, fmt.Errorf("recent photos for %s: %w", v.ID, err)
}

// unprovenError ends the narrow read without an answer.
type unprovenError struct {
	reason string
	refill bool // the set is missing or worthless: a refill would help the next read
}

func (e *unprovenError) Error() string { return e.reason }

// reading is one read under way.
type reading struct {
	*Reader
	viewer  contacts.Viewer
	limit   int
	entries []index.Entry // the candidates, highest score first
	trace   Trace
}

// timed records how long one step takes: defer rd.timed("name")().
func (rd *reading) timed(name string) func() {
	start := time.Now()
	return func() { rd.trace.Steps = append(rd.trace.Steps, Step{Name: name, Took: time.Since(start)}) }
}

// walk answers by a walk. One that is to be free fails at once with [ErrBusy] when
// all turns are taken.
func (rd *reading) walk(ctx context.Context, why *unprovenError, free bool) (Answer, error) {
	rd.trace.WalkReason = why.reason
	walked, err := rd.sharedWalk(ctx, free)
	if err != nil {
		return Answer{}, fmt.Errorf("walk for %s (%s): %w", rd.viewer.ID, why.reason, err)
	}
	if why.refill && walked.Indexable {
		rd.hints.Refill(rd.viewer.ID)
	}
	rd.walked(walked)
	return rd.answer(walked.Album, FromDatabase), nil
}

func (rd *reading) answer(album contacts.Album, source Source) Answer {
	return Answer{Album: album, Source: source, Trace: rd.trace, from: rd.Reader, viewer: rd.viewer}
}

// walked lets the walk overrule what the comparison of candidates came to.
func (rd *reading) walked(w contacts.Walked) {
	rd.trace.Walk, rd.trace.Proof = w.Trace, ByWalk
	for i := range rd.trace.Candidates {
		c := &rd.trace.Candidates[i]
		switch {
		case w.Contact != nil && c.Contact == w.Contact.ID:
			rd.examined(i, &w.Photos[0], Chosen)
		case c.Verdict == Chosen:
			c.Verdict = Older
		}
	}
}

// sharedWalk walks, or shares the walk of somebody who asked the same: after a
// lost Redis many requests for one viewer cost one walk.
func (rd *reading) sharedWalk(ctx context.Context, free bool) (contacts.Walked, error) {
	defer rd.timed("walk")()
	return rd.flights.do(ctx, rd.options.WalkTimeout, walkKey{rd.viewer, rd.limit, free}, func(ctx context.Context) (contacts.Walked, error) {
		end, err := rd.turn(ctx, free)
		if err != nil {
			return contacts.Walked{}, err
		}
		defer end()
		return rd.store.Walk(ctx, rd.viewer, rd.limit)
	})
}

// turn waits for a place among the walks, or returns [ErrBusy]; at once where one
// is to be free. Those that wait come first. Call end after the walk.
func (r *Reader) turn(ctx context.Context, free bool) (end func(), err error) {
	wait, cancel := context.WithTimeout(ctx, r.options.WalkWait)
	defer cancel()
	switch {
	case free && !r.walking.TryAcquire(1):
		return nil, ErrBusy
	case !free && r.walking.Acquire(wait, 1) != nil:
		if ctx.Err() == nil && !r.options.Uncounted { // the answer is still wanted
			walksRefused.Inc()
		}
		return nil, ErrBusy
	}
	walksInFlight.Inc()
	return func() {
		walksInFlight.Dec()
		r.walking.Release(1)
	}, nil
}
