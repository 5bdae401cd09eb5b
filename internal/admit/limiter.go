package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = errors.New("too much is asked at once")

// ErrShare is the [ErrBusy] of a viewer of which other reads wait.
var ErrShare = fmt.Errorf("%w, more by this viewer than by others", ErrBusy)

// Class is how a read is answered.
type Class int

// The classes of reads.
const (
	Proven   Class = iota // by the first candidate
	Compared              // by comparing all candidates
	Walk                  // by a walk, which waits for its turn
	FreeWalk              // by a walk that does not wait: the read can be answered otherwise
	Waiting               // not yet: it waits for Redis, which is slow
)

// weights are how busy a read of a class keeps the servers while it is under way, in those of a proven
// one. They are round numbers: for half of its time a proven read is between the servers, a compared
// one is in MySQL nearly all of it, and a walk fetches much more besides. How long a read takes needs
// no weight, as it holds its place for so long. "bench overload" measures each class.
var weights = [...]int{Proven: 1, Compared: 2, Walk: 3, FreeWalk: 3, Waiting: 0}

func (c Class) isWalk() bool { return c == Walk || c == FreeWalk }

// By says for what a read is.
type By struct {
	Caller string // the name of the token
	Viewer member.ID
}

// Place is the place of a read under way. It is safe for concurrent use.
type Place interface {
	// Turn says that the read turned out to be of another class. It does not wait. Waiting comes
	// first, and counts no more after another one.
	Turn(class Class)
	// Leave gives the place up. Only the first call counts. Of a proven read it says how long such
	// reads take.
	Leave(proven bool)
}

// Admitter lets reads in; [Limiter] is one. It is safe for concurrent use.
type Admitter interface {
	// Enter returns when the read may begin. It fails with [ErrBusy] when that is not soon, or with
	// the cause of the end of ctx.
	Enter(ctx context.Context, class Class, by By) (Place, error)
	// Refuses reports whether Enter would refuse such a read at once, and counts it if so. A Viewer
	// of 0 is one of which no other read waits.
	Refuses(by By) bool
	// Busy reports whether a read was refused a moment ago.
	Busy() bool
}

// Options configure a [Limiter].
type Options struct {
	Most  int // weight under way; default 24
	Least int // the limit does not fall below it; default 8, or Most
	// Wait is how long a read waits for a place, unless there is an overload; default 100 ms.
	Wait time.Duration
	// Uncounted: there are no metrics.
	Uncounted bool
}

// Limiter is the [Admitter] that the package documentation describes.
type Limiter struct {
	options Options

	mu        sync.Mutex
	law       law
	used      int // weight under way
	walks     int // under way
	reads     queue
	walking   queue // walks that wait
	callers   tallies[string]
	viewers   tallies[member.ID]
	refusedAt time.Time // the last one
}

// busyKept is how long after a refusal a limiter is busy.
const busyKept = 2 * time.Second

// New returns a Limiter.
func New(o Options) *Limiter {
	o.Most = cmp.Or(o.Most, 24)
	o.Least = min(cmp.Or(o.Least, 8), o.Most)
	o.Wait = cmp.Or(o.Wait, 100*time.Millisecond)
	return &Limiter{
		options: o, law: newLaw(o.Least, o.Most), callers: make(tallies[string]), viewers: make(tallies[member.ID]),
		reads: queue{class: Proven}, walking: queue{class: Walk},
	}
}

// Enter implements [Admitter].
func (l *Limiter) Enter(ctx context.Context, class Class, by By) (Place, error) {
	p, wait, err := l.enter(class, by)
	switch {
	case err != nil:
		return nil, err
	case wait == 0:
		return p, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.decided:
	case <-timer.C:
		l.giveUp(p, ErrBusy)
	case <-ctx.Done():
		l.giveUp(p, context.Cause(ctx))
	}
	if p.err != nil {
		return nil, p.err
	}
	return p, nil
}

// enter returns a place, and how long it may be waited for if it is not had yet.
func (l *Limiter) enter(class Class, by By) (p *place, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, q := time.Now(), l.queueOf(class)
	if len(q.waiting) == 0 && l.fits(class) {
		p = l.newPlace(class, by)
		l.let(p, now)
		return p, 0, nil
	}
	l.law.waits(class, now)
	defer l.serve(now) // the limit may have risen
	if class == FreeWalk {
		return nil, 0, ErrBusy // it is answered otherwise, so it counts not as refused
	}
	if err := l.tooMany(q, by, now); err != nil {
		l.refused(class, now)
		return nil, 0, err
	}
	p = l.newPlace(class, by)
	p.decided = make(chan struct{})
	q.push(p, now)
	if most, _ := l.bounds(q, now); len(q.waiting) > most {
		worst, err := q.waiting[q.worst()], ErrBusy
		if worst.viewer.waiting > 1 {
			err = ErrShare
		}
		l.refuse(worst, err, now)
	}
	_, wait = l.bounds(q, now)
	return p, wait, nil
}

// tooMany returns why a read that comes now must not wait, if so: as many wait as may, and no more of
// another caller or viewer than, with this one, of its own.
func (l *Limiter) tooMany(q *queue, by By, now time.Time) error {
	if most, _ := l.bounds(q, now); len(q.waiting) < most {
		return nil
	}
	worst, caller, viewer := q.waiting[q.worst()], l.callers[by.Caller], l.viewers[by.Viewer]
	// With this one there are so many of the same.
	byCaller, byViewer := worst.caller.waiting, worst.viewer.waiting
	if worst.caller == caller {
		byCaller++
	}
	if worst.viewer == viewer {
		byViewer++
	}
	if cmp.Or(cmp.Compare(byCaller, caller.of()+1), cmp.Compare(byViewer, viewer.of()+1)) > 0 {
		return nil
	}
	if viewer.of() > 0 {
		return ErrShare
	}
	return ErrBusy
}

// Refuses implements [Admitter].
func (l *Limiter) Refuses(by By) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.tooMany(&l.reads, by, now) == nil {
		return false
	}
	l.law.waits(Proven, now)
	l.refused(Proven, now)
	return true
}

// Busy implements [Admitter].
func (l *Limiter) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.refusedAt.IsZero() && time.Since(l.refusedAt) < busyKept
}

// bounds returns how many reads may wait now, and how long one that comes now may.
func (l *Limiter) bounds(q *queue, now time.Time) (most int, wait time.Duration) {
	switch {
	case q.class == Walk:
		return mostWaiting, walkFactor * l.options.Wait
	case q.overloaded(now):
		return l.law.limit, l.options.Wait / overloadShare
	}
	return mostWaiting, l.options.Wait
}

func (l *Limiter) queueOf(class Class) *queue {
	if class.isWalk() {
		return &l.walking
	}
	return &l.reads
}

// fits reports whether there is room for another read of a class. While both wait, reads and walks have
// half of it each. One walk may always be under way, so that what is missing comes back under any load.
func (l *Limiter) fits(class Class) bool {
	walks := weights[Walk] * l.walks
	if class.isWalk() {
		walks += weights[class]
		return l.walks == 0 || l.used+weights[class] <= l.law.limit && (len(l.reads.waiting) == 0 || 2*walks <= l.law.limit)
	}
	return l.used < l.law.limit && (len(l.walking.waiting) == 0 || 2*(l.used-walks) < l.law.limit)
}

// newPlace returns a place for a read, which has it when it is let in.
func (l *Limiter) newPlace(class Class, by By) *place {
	return &place{limiter: l, class: class, by: by, caller: l.callers.get(by.Caller), viewer: l.viewers.get(by.Viewer)}
}

// let lets a read in.
func (l *Limiter) let(p *place, now time.Time) {
	p.since = now
	p.caller.underWay++
	p.viewer.underWay++
	l.used += weights[p.class]
	if p.class.isWalk() {
		l.walks++
	}
}

// serve lets in what waits, as far as there is room.
func (l *Limiter) serve(now time.Time) {
	for again := true; again; {
		again = false
		for _, q := range []*queue{&l.reads, &l.walking} {
			if len(q.waiting) == 0 || !l.fits(q.class) {
				continue
			}
			p := q.waiting[q.next(now)]
			q.remove(p)
			l.let(p, now)
			close(p.decided)
			again = true
		}
	}
}

// refuse refuses one that waits.
func (l *Limiter) refuse(p *place, err error, now time.Time) {
	l.queueOf(p.class).remove(p)
	l.forget(p)
	p.err = err
	close(p.decided)
	if errors.Is(err, ErrBusy) {
		l.refused(p.class, now)
	}
}

// giveUp refuses one that has waited, unless that is decided.
func (l *Limiter) giveUp(p *place, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); p.err == nil && p.since.IsZero() {
		l.refuse(p, err, now)
		l.serve(now) // what waits for the other half may have all
	}
}

// refused counts a read that is refused.
func (l *Limiter) refused(class Class, now time.Time) {
	l.refusedAt = now
	if !l.options.Uncounted {
		refused[class].Inc()
	}
}

// forget ends the tallies of a place that are 0.
func (l *Limiter) forget(p *place) {
	l.callers.end(p.by.Caller)
	l.viewers.end(p.by.Viewer)
}

// place is one of a [Limiter], or what waits for one. The limiter's lock guards it, but err is not
// changed after decided is closed.
type place struct {
	limiter        *Limiter
	class          Class
	by             By
	caller, viewer *tally
	decided        chan struct{} // closed when it is let in or refused; nil: it did not wait
	err            error         // why it is refused
	since          time.Time     // when it was let in; zero: it waits
	turned, left   bool
}

// Turn implements [Place].
func (p *place) Turn(class Class) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.left || p.turned && class == Waiting {
		return
	}
	l.used += weights[class] - weights[p.class]
	p.class, p.turned = class, class != Waiting
	l.serve(time.Now())
}

// Leave implements [Place].
func (p *place) Leave(proven bool) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	l.used -= weights[p.class]
	if p.class.isWalk() {
		l.walks--
	}
	p.caller.underWay--
	p.viewer.underWay--
	l.forget(p)
	now := time.Now()
	if proven && l.law.note(now.Sub(p.since), now) && !l.options.Uncounted {
		limitNow.Set(float64(l.law.limit))
	}
	l.serve(now)
}
