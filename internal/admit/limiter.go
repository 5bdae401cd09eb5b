package admit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = errors.New("too much is asked at once")

// Class is how a read is answered.
type Class int

// The classes of reads.
const (
	Proven   Class = iota // by the first candidate
	Compared              // by comparing all candidates
	Walk                  // by a walk, which waits for its turn
	FreeWalk              // by a walk that does not wait: the read can be answered otherwise
)

// weights are by how much a read of a class keeps this process and MySQL busy while it is under
// way, in those of a proven one. The measured processor time of the process and MySQL together,
// and the time with nothing else to do, were 0.4 ms in 1 ms for a proven read, 1 ms in 1.7 ms for
// a compared one, and 3 to 24 ms, nearly all of the time, for a walk.
var weights = [...]int{Proven: 1, Compared: 2, Walk: 3, FreeWalk: 3}

func (c Class) isWalk() bool { return c >= Walk }

// By says for what a read is.
type By struct {
	Caller string // the name of the token
	Viewer member.ID
}

type callerKey struct{}

// WithCaller returns a context with the name of the token that a request has.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller returns the name that [WithCaller] gave to a context, or "".
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}

// Place is the place of a read under way. Its methods are called by one goroutine.
type Place interface {
	// Turn says that the read turned out to be of another class. It does not wait.
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
}

// Options configure a [Limiter].
type Options struct {
	Most  int // weight under way; default 24
	Least int // the limit does not fall below it; default 8, or Most
	// Wait is how long a read waits for a place; default 50 ms. A walk waits WalkWait; default 250 ms.
	Wait, WalkWait time.Duration
	// Uncounted: there are no metrics.
	Uncounted bool
}

// Limiter is the [Admitter] that the package documentation describes.
type Limiter struct {
	options Options

	mu      sync.Mutex
	law     law
	used    int // weight under way
	walks   int // under way
	reads   queue
	walking queue // walks that wait
	callers map[string]int
	viewers map[member.ID]int // under way and waiting
}

// New returns a Limiter.
func New(o Options) *Limiter {
	o.Most = cmp.Or(o.Most, 24)
	o.Least = min(cmp.Or(o.Least, 8), o.Most)
	o.Wait = cmp.Or(o.Wait, 50*time.Millisecond)
	o.WalkWait = cmp.Or(o.WalkWait, 250*time.Millisecond)
	return &Limiter{
		options: o, law: newLaw(o.Least, o.Most),
		callers: make(map[string]int), viewers: make(map[member.ID]int),
	}
}

// Enter implements [Admitter].
func (l *Limiter) Enter(ctx context.Context, class Class, by By) (Place, error) {
	p, w, err := l.enter(class, by)
	if w == nil {
		if p == nil {
			return nil, err
		}
		return p, nil
	}
	wait := l.options.Wait
	if class.isWalk() {
		wait = l.options.WalkWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.decided:
	case <-timer.C:
		l.giveUp(w, ErrBusy)
	case <-ctx.Done():
		l.giveUp(w, context.Cause(ctx))
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.place, nil
}

// enter returns a place, or what waits for one, or why there is none.
func (l *Limiter) enter(class Class, by By) (*place, *waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.reads
	if class.isWalk() {
		q = &l.walking
	}
	if len(*q) == 0 && l.fits(class) {
		l.viewers[by.Viewer]++
		return l.let(class, by), nil, nil
	}
	l.law.waits(class, time.Now())
	if class == FreeWalk || l.viewers[by.Viewer] >= max(2, l.law.limit/4) {
		l.refused(class)
		return nil, nil, ErrBusy
	}
	w := &waiter{class: class, by: by, decided: make(chan struct{})}
	l.viewers[by.Viewer]++
	q.push(w)
	if len(*q) > 2*l.law.limit {
		l.refuse(q, q.worst(), ErrBusy)
	}
	return nil, w, nil
}

// fits reports whether there is room for another read of a class.
func (l *Limiter) fits(class Class) bool {
	if !class.isWalk() {
		return l.used < l.law.limit
	}
	// One walk may always be under way, so that what is missing comes back under any load.
	return l.walks == 0 || len(l.reads) == 0 && l.used+weights[class] <= l.law.limit && 2*(l.walks+1)*weights[class] <= l.law.limit
}

// let lets a read in, of which its viewer is counted already.
func (l *Limiter) let(class Class, by By) *place {
	p := &place{limiter: l, class: class, by: by, since: time.Now()}
	l.used += weights[class]
	if class.isWalk() {
		l.walks++
	}
	l.callers[by.Caller]++
	return p
}

// serve lets in those that wait, as far as there is room.
func (l *Limiter) serve() {
	for _, q := range []*queue{&l.reads, &l.walking} {
		for len(*q) > 0 {
			i := q.next(l.callers)
			w := (*q)[i]
			if !l.fits(w.class) {
				break
			}
			q.remove(i)
			w.place = l.let(w.class, w.by)
			close(w.decided)
		}
	}
}

// refuse refuses the one that waits at i.
func (l *Limiter) refuse(q *queue, i int, err error) {
	w := q.remove(i)
	decrement(l.viewers, w.by.Viewer)
	w.err = err
	close(w.decided)
	if errors.Is(err, ErrBusy) {
		l.refused(w.class)
	}
}

// giveUp refuses w unless that is decided.
func (l *Limiter) giveUp(w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range []*queue{&l.reads, &l.walking} {
		if i := q.find(w); i >= 0 {
			l.refuse(q, i, err)
		}
	}
}

func (l *Limiter) refused(class Class) {
	if !l.options.Uncounted && class != FreeWalk { // such a read is answered otherwise
		refused[class].Inc()
	}
}

// place is one of a [Limiter].
type place struct {
	limiter *Limiter
	class   Class
	by      By
	since   time.Time
	left    bool
}

// Turn implements [Place].
func (p *place) Turn(class Class) {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if !p.left {
		p.limiter.used += weights[class] - weights[p.class]
		p.class = class
	}
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
	decrement(l.callers, p.by.Caller)
	decrement(l.viewers, p.by.Viewer)
	if now := time.Now(); proven && l.law.note(now.Sub(p.since), now) && !l.options.Uncounted {
		limitNow.Set(float64(l.law.limit))
	}
	l.serve()
}

// decrement keeps no zeros.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
