package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = errors.New("too much is asked at once")

// ErrShare is the [ErrBusy] of a viewer of which other reads wait.
var ErrShare = fmt.Errorf("%w, more by this viewer than by others", ErrBusy)

// By says for what a read is.
type By struct {
	Caller string // the name of the token
	Viewer member.ID
}

// Place is the place of a read under way. It is safe for concurrent use.
type Place interface {
	// Pause gives the place up while the read waits for Redis, which is slow.
	Pause()
	// Resume takes a place again, as [Admitter.Enter] does. After it, or where nothing was paused,
	// Pause does nothing.
	Resume(ctx context.Context) error
	// Walk reports whether the read may walk. It does not wait.
	Walk() bool
	// Leave gives the place up, also while Resume waits for one. Only the first call counts. Of a proven
	// read it says how long such reads take.
	Leave(proven bool)
}

// Admitter lets reads in; [Limiter] is one. It is safe for concurrent use.
type Admitter interface {
	// Enter returns when the read may begin. It fails with [ErrBusy] when that is not soon, or with
	// the cause of the end of ctx.
	Enter(ctx context.Context, by By) (Place, error)
	// Refuses reports whether Enter would refuse such a read at once, and counts it if so. A Viewer
	// of 0 is one of which no other read waits.
	Refuses(by By) bool
	// Busy reports whether a read was refused a moment ago.
	Busy() bool
}

// Options configure a [Limiter].
type Options struct {
	Most  int // reads under way; default 24
	Least int // the limit does not fall below it; default 8, or Most
}

const (
	// burst is how long reads may wait without a pause. What lasts longer is an overload. It is also
	// how long a read waits in a burst.
	burst = 100 * time.Millisecond
	// mostWaiting is how many reads wait in a burst.
	mostWaiting = 256
	// overloadWait is how long a read waits in an overload.
	overloadWait = 10 * time.Millisecond
	// overloadKept is for how long after a refusal there is an overload.
	overloadKept = 200 * time.Millisecond
)

// Limiter is the [Admitter] that the package documentation describes.
type Limiter struct {
	mu        sync.Mutex
	law       law
	used      int       // reads under way
	walks     int       // of those, the ones that walk
	waiting   []*place  // the oldest first; they are few, so all are looked at
	since     time.Time // since when there was always one that waits
	callers   tallies[string]
	viewers   tallies[member.ID]
	refusedAt time.Time // the last one
}

// place is one of a [Limiter], or what waits for one. The limiter's lock guards it, but err is not
// changed after decided is closed.
type place struct {
	limiter        *Limiter
	by             By
	caller, viewer *tally
	decided        chan struct{} // closed when it is let in or refused; nil: it did not wait
	err            error         // why it is refused
	since          time.Time     // when it was first let in
	in             bool
	paused         time.Time // when it gave its place up for a while; zero: it did not
	resumed        bool      // it pauses no more
	walks          bool
	left           bool
}

// New returns a Limiter.
func New(o Options) *Limiter {
	most := cmp.Or(o.Most, 24)
	least := min(cmp.Or(o.Least, 8), most)
	limitNow.Set(float64(least))
	return &Limiter{law: newLaw(least, most), callers: make(tallies[string]), viewers: make(tallies[member.ID])}
}

// Enter implements [Admitter].
func (l *Limiter) Enter(ctx context.Context, by By) (Place, error) {
	p := &place{limiter: l, by: by}
	if err := p.enter(ctx); err != nil {
		if errors.Is(err, ErrBusy) {
			refused.Inc()
		}
		return nil, err
	}
	return p, nil
}

// enter returns when a read has its place, or why it has none.
func (p *place) enter(ctx context.Context) error {
	wait, err := p.tryEnter(time.Now())
	if wait == 0 {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.decided:
	case <-timer.C:
		p.giveUp(ErrBusy)
	case <-ctx.Done():
		p.giveUp(context.Cause(ctx))
	}
	return p.err
}

// tryEnter lets a read in, or returns for how long it waits, or why it must not.
func (p *place) tryEnter(now time.Time) (wait time.Duration, err error) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isRoom(now) {
		p.caller, p.viewer = l.callers.get(p.by.Caller), l.viewers.get(p.by.Viewer)
		l.let(p, now)
		return 0, nil
	}
	if err := l.tooMany(p.by, p.resumed, now); err != nil {
		return 0, err
	}
	p.caller, p.viewer = l.callers.get(p.by.Caller), l.viewers.get(p.by.Viewer)
	return l.push(p, now), nil
}

// isRoom reports whether a read that comes may begin.
func (l *Limiter) isRoom(now time.Time) bool {
	if l.used >= l.law.limit || len(l.waiting) > 0 {
		l.law.waits(l.walks > 0, now)
		limitNow.Set(float64(l.law.limit))
		l.serve(now) // the limit may have risen
	}
	return l.used < l.law.limit && len(l.waiting) == 0
}

// overloaded reports whether more comes than can be answered.
func (l *Limiter) overloaded(now time.Time) bool {
	return len(l.waiting) > 0 && now.Sub(l.since) >= burst || !l.refusedAt.IsZero() && now.Sub(l.refusedAt) < overloadKept
}

// bounds returns how many reads may wait now, and how long one that comes now may. One that resumes has
// waited for Redis, and is treated as in a burst.
func (l *Limiter) bounds(resumes bool, now time.Time) (most int, wait time.Duration) {
	if !resumes && l.overloaded(now) {
		return l.law.limit, overloadWait
	}
	return mostWaiting, burst
}

// tooMany returns why a read that comes now must not wait, if so: as many wait as may, and no more of
// another caller or viewer than, with this one, of its own.
func (l *Limiter) tooMany(by By, resumes bool, now time.Time) error {
	most, _ := l.bounds(resumes, now)
	if len(l.waiting) < most {
		return nil
	}
	worst, caller, viewer := l.waiting[l.worst()], l.callers[by.Caller], l.viewers[by.Viewer]
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
	l.refusedAt = now
	if viewer.of() > 0 {
		return ErrShare
	}
	return ErrBusy
}

// push lets a place wait, and returns for how long. One that is too many for it is refused.
func (l *Limiter) push(p *place, now time.Time) time.Duration {
	if len(l.waiting) == 0 {
		l.since = now
	}
	p.decided = make(chan struct{})
	l.waiting = append(l.waiting, p)
	p.caller.waiting++
	p.viewer.waiting++
	most, wait := l.bounds(p.resumed, now)
	if len(l.waiting) > most {
		worst, err := l.waiting[l.worst()], ErrBusy
		if worst.viewer.waiting > 1 {
			err = ErrShare
		}
		l.refuse(worst, err, now)
	}
	return wait
}

// Refuses implements [Admitter].
func (l *Limiter) Refuses(by By) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.isRoom(now) || l.tooMany(by, false, now) == nil {
		return false
	}
	refused.Inc()
	return true
}

// Busy implements [Admitter].
func (l *Limiter) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.refusedAt.IsZero() && time.Since(l.refusedAt) < 10*overloadKept
}

// next returns which one is let in next: one that resumes, if there is one; of the caller with the
// fewest reads under way, and of its viewers of the one with the fewest; the newest in an overload, else
// the oldest.
func (l *Limiter) next(now time.Time) (best int) {
	newest := l.overloaded(now)
	for i, p := range l.waiting[1:] {
		b := l.waiting[best]
		if p.resumed != b.resumed {
			if p.resumed {
				best = i + 1
			}
			continue
		}
		order := cmp.Or(cmp.Compare(p.caller.underWay, b.caller.underWay), cmp.Compare(p.viewer.underWay, b.viewer.underWay))
		if order < 0 || order == 0 && newest {
			best = i + 1
		}
	}
	return best
}

// worst returns which one is refused when too many wait: the oldest one of the caller of which the
// most wait, and of its viewers of the one of which the most do.
func (l *Limiter) worst() (worst int) {
	for i, p := range l.waiting {
		w := l.waiting[worst]
		if cmp.Or(cmp.Compare(p.caller.waiting, w.caller.waiting), cmp.Compare(p.viewer.waiting, w.viewer.waiting)) > 0 {
			worst = i
		}
	}
	return worst
}

// remove takes one out of what waits.
func (l *Limiter) remove(i int) *place {
	p := l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	p.caller.waiting--
	p.viewer.waiting--
	return p
}

// let lets a read in.
func (l *Limiter) let(p *place, now time.Time) {
	p.in = true
	if p.since.IsZero() {
		p.since = now
	}
	if !p.paused.IsZero() { // what it waited for is no time of the servers
		p.since = p.since.Add(now.Sub(p.paused))
	}
	p.caller.underWay++
	p.viewer.underWay++
	l.used++
}

// out takes the place of a read that is in.
func (l *Limiter) out(p *place) {
	p.in = false
	p.caller.underWay--
	p.viewer.underWay--
	l.used--
}

// serve lets in what waits, as far as there is room.
func (l *Limiter) serve(now time.Time) {
	for len(l.waiting) > 0 && l.used < l.law.limit {
		p := l.remove(l.next(now))
		l.let(p, now)
		close(p.decided)
	}
}

// refuse refuses one that waits.
func (l *Limiter) refuse(p *place, err error, now time.Time) {
	l.remove(slices.Index(l.waiting, p))
	l.forget(p)
	p.err = err
	close(p.decided)
	if errors.Is(err, ErrBusy) {
		l.refusedAt = now
	}
}

// giveUp refuses one that has waited, unless that is decided.
func (p *place) giveUp(err error) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.err == nil && !p.in {
		l.refuse(p, err, time.Now())
	}
}

// forget ends the tallies of a place that are 0.
func (l *Limiter) forget(p *place) {
	l.callers.end(p.by.Caller)
	l.viewers.end(p.by.Viewer)
}

// Pause implements [Place].
func (p *place) Pause() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.left || p.resumed || !p.in {
		return
	}
	p.paused = time.Now()
	l.out(p)
	l.forget(p)
	l.serve(p.paused)
}

// Resume implements [Place].
func (p *place) Resume(ctx context.Context) error {
	l := p.limiter
	l.mu.Lock()
	goesOn := p.in || p.left
	p.resumed = true
	l.mu.Unlock()
	if goesOn {
		return nil
	}
	err := p.enter(ctx)
	if errors.Is(err, ErrShare) {
		err = ErrBusy // much was done for it: that others of the viewer wait is not its fault
	}
	return err
}

// Walk implements [Place]. In an overload half of the places are for reads that do not walk. One walk
// may always be under way, so that what is missing comes back under any load.
func (p *place) Walk() bool {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.left || p.walks {
		return true
	}
	if l.walks > 0 && 2*(l.walks+1) > l.law.limit && l.overloaded(time.Now()) {
		return false
	}
	p.walks = true
	l.walks++
	return true
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
	if p.walks {
		l.walks--
	}
	now := time.Now()
	if !p.in {
		if slices.Contains(l.waiting, p) { // Resume does
			l.refuse(p, context.Canceled, now)
		}
		return
	}
	l.out(p)
	l.forget(p)
	if proven && l.law.note(now.Sub(p.since), now) {
		limitNow.Set(float64(l.law.limit))
	}
	l.serve(now)
}

// tally is of the reads of a caller, or of a viewer.
type tally struct{ underWay, waiting int }

// of returns how many wait; of nil, none.
func (t *tally) of() int {
	if t == nil {
		return 0
	}
	return t.waiting
}

// tallies are those that are not 0.
type tallies[K comparable] map[K]*tally

func (t tallies[K]) get(key K) *tally {
	one := t[key]
	if one == nil {
		one = &tally{}
		t[key] = one
	}
	return one
}

func (t tallies[K]) end(key K) {
	if one := t[key]; one != nil && *one == (tally{}) {
		delete(t, key)
	}
}
