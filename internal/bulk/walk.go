package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
)

// Range is the members from First to Last, both included.
type Range struct{ First, Last member.ID }

// All is the range of all members.
var All = Range{First: 1, Last: math.MaxUint64}

// String names the range, as in "members 7-9".
func (r Range) String() string {
	switch {
	case r == All:
		return "all members"
	case r.First == r.Last:
		return "member " + r.First.String()
	case r.Last == math.MaxUint64:
		return "the members from " + r.First.String()
	}
	return fmt.Sprintf("members %s-%s", r.First, r.Last)
}

// Counts are numbers of members, sets and so on, by name.
type Counts map[string]int64

// Add adds other to c.
func (c Counts) Add(other Counts) {
	for name, n := range other {
		c[name] += n
	}
}

// What a [Walk] counts.
const (
	Failed      = "failed"      // members that were given up
	Unreachable = "unreachable" // members whose server was away for longer than [Walk.Patience]
)

// Checkpoint is how far a walk is; the zero value is its beginning.
type Checkpoint struct {
	Position member.ID // all members of the range up to this one are done; 0: none
	Counts   Counts    // of the members up to Position
}

func (c Checkpoint) clone() Checkpoint { return Checkpoint{c.Position, maps.Clone(c.Counts)} }

// Source lists members.
type Source interface {
	// Members returns up to limit ids of members above after, ascending; an
	// empty result is the end.
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
}

// List is a [Source] of its members, which ascend.
type List []member.ID

// Members implements [Source].
func (l List) Members(_ context.Context, after member.ID, limit int) ([]member.ID, error) {
	at, found := slices.BinarySearch(l, after)
	if found {
		at++
	}
	return slices.Clone(l[at:min(at+limit, len(l))]), nil
}

// Visit does the work for some members. It returns what it counted for those that
// are done, and with an error those that are left; an error with none left concerns
// them all. It must be idempotent and safe for concurrent use.
type Visit func(ctx context.Context, members []member.ID) (done Counts, left []member.ID, err error)

// Fault is what an error means for the members on which a visit failed.
type Fault int

// The faults.
const (
	Fatal Fault = iota // ends the walk: a repetition would fail as well
	Away               // a server cannot be used now: wait for it
	Own                // may be due to one of the members
)

// Walk visits the members of a range. Source, Pacer, Visit and Judge are required.
type Walk struct {
	Range  Range
	Source Source
	Pacer  *Pacer
	Visit  Visit
	Judge  func(error) Fault // of Visit and Source

	Batch int // members of a visit; 0: 256
	// Tries is how often a single member is visited before it is given up; 0: 10.
	Tries int
	// Patience is how long members of a batch are visited again because their server is away,
	// before they are counted as [Unreachable]; 0: without limit.
	Patience time.Duration
	// Timeout cancels a visit, which counts as [Own]; 0: none.
	Timeout time.Duration
	// Grace is how long visits under way may go on when the context ends.
	Grace time.Duration

	// Saved is called after each batch, with the number of its members and the
	// checkpoint, which may be the same as before. Calls are not concurrent. An error
	// ends the walk. May be nil.
	Saved func(n int, at Checkpoint) error
	// Trouble is called with each error that does not end the walk, GaveUp with each
	// member that is given up. Calls may be concurrent. Both may be nil.
	Trouble func(error)
	GaveUp  func(id member.ID, err error)
}

// maxTries is how often an [Own] error is accepted, by default.
const maxTries = 10

// ErrStopped is the error of work whose context ended.
var ErrStopped = errors.New("stopped")

// maxOpen bounds the batches that have begun and are above the position: how far others may run
// ahead of a batch that is slow, or has members whose node of Redis is away, and how much is
// repeated after a crash. It is enough for a failover to a replica.
const maxOpen = 1024

// walk is a [Walk] under way.
type walk struct {
	Walk

	starting context.Context // ended: nothing begins
	visiting context.Context // ended: visits are cancelled
	slots    chan struct{}   // has an element for each open batch

	mu     sync.Mutex // guards what follows
	at     Checkpoint
	open   []*batch // begun and not behind the position, in the order of members
	failed int64    // members that were given up by this walk
}

// Run walks on from a checkpoint and returns the last one, also with an error, which
// is [ErrStopped] when ctx ended.
func (o Walk) Run(ctx context.Context, from Checkpoint) (Checkpoint, error) {
	o.Batch, o.Tries = cmp.Or(o.Batch, 256), cmp.Or(o.Tries, maxTries)
	if o.Saved == nil {
		o.Saved = func(int, Checkpoint) error { return nil }
	}
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	if o.GaveUp == nil {
		o.GaveUp = func(member.ID, error) {}
	}
	w := &walk{Walk: o, at: from.clone(), slots: make(chan struct{}, maxOpen)}
	if w.at.Counts == nil {
		w.at.Counts = Counts{}
	}
	group, starting := errgroup.WithContext(ctx)
	visiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	w.starting, w.visiting = starting, visiting
	context.AfterFunc(starting, func() {
		if ctx.Err() == nil { // an error ended it
			cancel()
		} else {
			time.AfterFunc(o.Grace, cancel)
		}
	})
	group.Go(func() error { return w.begin(group) }) // visits outlast starting
	err := group.Wait()
	return w.at.clone(), err
}

// begin lists the members and begins a batch after the other, until there are no
// more members or nothing may begin.
func (w *walk) begin(group *errgroup.Group) error {
	for after := max(w.at.Position, w.Range.First-1); ; {
		members, err := w.list(after)
		if err != nil || len(members) == 0 {
			return err
		}
		select {
		case w.slots <- struct{}{}:
		case <-w.starting.Done():
			return ErrStopped
		}
		leave, err := w.Pacer.Enter(w.starting, len(members))
		if err != nil {
			return ErrStopped
		}
		b := &batch{members: members, counts: Counts{}}
		w.mu.Lock()
		w.open = append(w.open, b)
		w.mu.Unlock()
		group.Go(func() error { return w.work(b, leave) })
		after = members[len(members)-1]
	}
}

// list returns the members of the range that follow, in spite of errors that pass.
func (w *walk) list(after member.ID) (members []member.ID, err error) {
	ask := func(ctx context.Context) error {
		ctx, cancel := w.limit(ctx)
		defer cancel()
		members, err = w.Source.Members(ctx, after, w.Batch)
		return w.explain(ctx, err)
	}
	if err := patiently(w.starting, w.judge, w.Trouble, ask); err != nil {
		if !errors.Is(err, ErrStopped) {
			err = fmt.Errorf("list the members after %s: %w", after, err)
		}
		return nil, err
	}
	return slices.DeleteFunc(members, func(id member.ID) bool { return id > w.Range.Last }), nil
}

// errTooMany: the error concerns all members.
var errTooMany = errors.New("too many members were given up")

// maxFailed is how many members are given up before the walk ends with errTooMany.
const maxFailed = 1000

// end notes that a batch is done, and moves the position over all that are.
func (w *walk) end(b *batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.done = true
	for len(w.open) > 0 && w.open[0].done {
		first := w.open[0]
		w.open = w.open[1:]
		w.at.Position = first.members[len(first.members)-1]
		w.at.Counts.Add(first.counts)
		<-w.slots
	}
	if err := w.Saved(len(b.members), w.at.clone()); err != nil {
		return fmt.Errorf("keep the position: %w", err)
	}
	if w.failed += b.counts[Failed]; w.failed >= maxFailed {
		return fmt.Errorf("%w: %d", errTooMany, w.failed)
	}
	return nil
}

// batch is members that entered together, and what was counted for them.
type batch struct {
	members []member.ID
	counts  Counts
	done    bool
	away    time.Time // since when a server is; zero: none is
}

// work visits the members of a batch, which has entered, until all are done or given
// up. Those left by a round of visits are visited in the next one, after a pause.
func (w *walk) work(b *batch, leave func()) error {
	alone := make(map[member.ID]int) // visits of a single member that failed with [Own]
	parts := [][]member.ID{b.members}
	for round := 1; ; round++ {
		var next [][]member.ID
		for i, part := range parts {
			if leave == nil {
				var err error
				if leave, err = w.Pacer.Enter(w.starting, len(part)); err != nil {
					return ErrStopped
				}
			}
			left, away, err := w.visitPart(b, part, alone)
			leave()
			if err != nil {
				return err
			}
			leave = nil
			next = append(next, left...)
			if away { // the others are visited when this part is done
				next = append(next, parts[i+1:]...)
				break
			}
		}
		if len(next) == 0 {
			return w.end(b)
		}
		parts = next
		if !pause(w.starting, round) {
			return ErrStopped
		}
	}
}

// visitPart visits a part of a batch once, and returns the parts to visit again, and
// whether a server was away: then the first of them is one member, which finds out whether
// it is back.
func (w *walk) visitPart(b *batch, part []member.ID, alone map[member.ID]int) (again [][]member.ID, away bool, err error) {
	left, err := w.visit(b, part)
	if err == nil {
		b.away = time.Time{}
		return nil, false, nil
	}
	if w.starting.Err() != nil {
		return nil, false, ErrStopped
	}
	switch w.judge(err) {
	case Fatal:
		return nil, false, fmt.Errorf("members %s to %s: %w", part[0], part[len(part)-1], err)
	case Away:
		if b.away.IsZero() {
			b.away = time.Now()
		} else if w.Patience > 0 && time.Since(b.away) >= w.Patience {
			b.counts[Unreachable] += int64(len(left))
			return nil, false, nil
		}
		away, again = true, [][]member.ID{left[:1]}
		if len(left) > 1 {
			again = append(again, left[1:])
		}
	case Own:
		if len(part) == 1 {
			alone[part[0]]++
		}
		if alone[part[0]] == w.Tries {
			b.counts[Failed]++
			w.GaveUp(part[0], err)
			return nil, false, nil
		}
		again = slices.Collect(slices.Chunk(left, (len(left)+1)/2))
	}
	w.Trouble(err)
	return again, away, nil
}

// visit visits once and counts the members that are done. With an error, at least one
// is left.
func (w *walk) visit(b *batch, members []member.ID) (left []member.ID, err error) {
	ctx, cancel := w.limit(w.visiting)
	defer cancel()
	done, left, err := w.Visit(ctx, members)
	if err != nil && len(left) == 0 {
		return members, w.explain(ctx, err)
	}
	b.counts.Add(done)
	return left, w.explain(ctx, err)
}

// errTooLong is the cause of what [Walk.Timeout] cancels.
var errTooLong = errors.New("it took too long")

func (w *walk) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, w.Timeout, errTooLong)
}

// explain says of an error that it is due to the timeout.
func (w *walk) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%w (more than %v): %w", errTooLong, w.Timeout, err)
	}
	return err
}

func (w *walk) judge(err error) Fault {
	if errors.Is(err, errTooLong) {
		return Own
	}
	return w.Judge(err)
}

// patiently repeats do until it succeeds, fails with a [Fatal] error, or failed ten
// times with an [Own] one. It returns [ErrStopped] when ctx ends.
func patiently(ctx context.Context, judge func(error) Fault, trouble func(error), do func(context.Context) error) error {
	own := 0
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ErrStopped
		}
		fault := judge(err)
		if fault == Own {
			own++
		}
		if fault == Fatal || own == maxTries {
			return err
		}
		trouble(err)
		if !pause(ctx, try) {
			return ErrStopped
		}
	}
}

// pause waits after the n-th failure in a row, and returns false when ctx ends.
func pause(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Backoff(n, 100*time.Millisecond, 5*time.Second)) == nil
}
