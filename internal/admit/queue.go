package admit

import (
	"cmp"
	"slices"
	"time"
)

const (
	// burst is how long reads may wait without a pause. What lasts longer is an overload.
	burst = 100 * time.Millisecond
	// mostWaiting is how many reads wait in a burst.
	mostWaiting = 256
	// overloadShare: in an overload a read waits for one part in so many of Options.Wait.
	overloadShare = 10
	// walkFactor: a walk waits for so many times as long, also in an overload. Few fit, as when
	// Redis is away, and then there is nothing else to answer by.
	walkFactor = 5
)

// queue is what waits, the oldest first. It is short, so all of it is looked at.
type queue struct {
	class   Class
	waiting []*place
	since   time.Time // since when there was always something
}

// overloaded reports whether more comes than can be answered.
func (q *queue) overloaded(now time.Time) bool {
	return len(q.waiting) > 0 && now.Sub(q.since) >= burst
}

func (q *queue) push(p *place, now time.Time) {
	if len(q.waiting) == 0 {
		q.since = now
	}
	q.waiting = append(q.waiting, p)
	p.caller.waiting++
	p.viewer.waiting++
}

func (q *queue) remove(p *place) {
	i := slices.Index(q.waiting, p)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	p.caller.waiting--
	p.viewer.waiting--
}

// next returns which one is let in next: one of the caller with the fewest reads under way, and of
// its viewers of the one with the fewest; the newest in an overload, else the oldest.
func (q *queue) next(now time.Time) (best int) {
	newest := q.overloaded(now)
	for i, p := range q.waiting[1:] {
		b := q.waiting[best]
		order := cmp.Or(cmp.Compare(p.caller.underWay, b.caller.underWay), cmp.Compare(p.viewer.underWay, b.viewer.underWay))
		if order < 0 || order == 0 && newest {
			best = i + 1
		}
	}
	return best
}

// worst returns which one is refused when too many wait: the oldest one of the caller of which the
// most wait, and of its viewers of the one of which the most do.
func (q *queue) worst() (worst int) {
	for i, p := range q.waiting {
		w := q.waiting[worst]
		if cmp.Or(cmp.Compare(p.caller.waiting, w.caller.waiting), cmp.Compare(p.viewer.waiting, w.viewer.waiting)) > 0 {
			worst = i
		}
	}
	return worst
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
