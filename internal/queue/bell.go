package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Bell wakes idle workers when something was enqueued: one worker for each queue
// that is rung for, so that a thousand workers do not start for one task. A
// worker that finds more than it can take rings for a colleague. The zero Bell
// is ready. It is safe for concurrent use.
//
// No ring goes unheard between "found nothing" and "asleep". A ring comes after
// the commit of what it is about, and either meets a sleeper of the queue, which
// looks into that queue first, or leaves the queue marked as rung for. Lying down
// and ringing exclude each other, and whoever wants to lie down while one of its
// queues is marked looks into that one instead. The mark is wiped only by a
// worker that is about to look: what the ring was about is there by then. One
// whose look fails keeps the queue in mind and looks again. So after a ring
// somebody looks, unless all who work on that queue are busy; and none of them
// lies down before it has looked.
//
// One look is not quite enough, though: a claim passes over rows that are locked,
// and InnoDB locks a row for a moment only to see that it is beyond the end of
// what somebody else asked for. So a look that finds nothing though there was a
// ring is repeated a little later; see lookAgain.
type Bell struct {
	mu        sync.Mutex
	tended    map[string]*tended
	sleepers  []*sleeper  // in the order in which they lay down
	listeners []*listener // replaced as a whole, so that Ring needs no copy
}

// tended is a queue on which workers of this process work.
type tended struct {
	pools int  // by how many pools
	rung  bool // for it, when nobody slept who could come
}

// sleeper is a worker, as the bell knows it.
type sleeper struct {
	queues []string    // that it works on, its home first
	keeper bool        // of its home
	woken  chan string // gets the queue it was woken for; holds one
}

type listener struct{ tell func(queues []string) }

func newSleeper(keeper bool, queues []string) *sleeper {
	return &sleeper{queues: queues, keeper: keeper, woken: make(chan string, 1)}
}

// Ring says that there is something new in the queues, after it was committed. It
// wakes one worker of this process for each of them, and tells the listeners.
func (b *Bell) Ring(queues ...string) {
	if len(queues) == 0 {
		return
	}
	b.RingHere(queues...)
	b.mu.Lock()
	listeners := b.listeners
	b.mu.Unlock()
	for _, l := range listeners {
		l.tell(queues)
	}
}

// RingHere is Ring without the listeners: for what other processes told.
func (b *Bell) RingHere(queues ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, queue := range queues {
		b.ring(queue)
	}
}

// RingAllHere is RingHere for every queue that workers of this process work on:
// for when it is not known what was missed.
func (b *Bell) RingAllHere() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for queue := range b.tended {
		b.ring(queue)
	}
}

// Listen makes tell hear every [Bell.Ring], until forget is called. It is called
// by whoever rings, must not block, and must not change or keep queues.
func (b *Bell) Listen(tell func(queues []string)) (forget func()) {
	l := &listener{tell}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(slices.Clone(b.listeners), l)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.listeners = slices.DeleteFunc(slices.Clone(b.listeners), func(other *listener) bool { return other == l })
	}
}

// ring wakes a sleeper or leaves a mark. There is no sleeper while there is a
// mark.
func (b *Bell) ring(queue string) {
	t := b.tended[queue]
	if t == nil || t.rung {
		return
	}
	s := b.sleeperFor(queue)
	if s == nil {
		t.rung = true
		return
	}
	b.remove(s)
	s.woken <- queue
}

// sleeperFor returns the queue's keeper if it sleeps, or else who is at home
// there, or else who helps there; nil when nobody sleeps.
func (b *Bell) sleeperFor(queue string) *sleeper {
	var best *sleeper
	for _, s := range b.sleepers {
		if slices.Contains(s.queues, queue) && (best == nil || s.distance(queue) < best.distance(queue)) {
			best = s
		}
	}
	return best
}

// distance is the smaller the more the queue is this worker's business.
func (s *sleeper) distance(queue string) int {
	switch {
	case s.keeper:
		return 0
	case s.queues[0] == queue:
		return 1
	}
	return 2
}

func (b *Bell) remove(s *sleeper) (slept bool) {
	at := slices.Index(b.sleepers, s)
	if at < 0 {
		return false
	}
	b.sleepers = slices.Delete(b.sleepers, at, at+1)
	return true
}

// tend makes rings for the queues count, until forget is called.
func (b *Bell) tend(queues []string) (forget func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tended == nil {
		b.tended = make(map[string]*tended)
	}
	for _, queue := range queues {
		b.tended[queue] = cmp.Or(b.tended[queue], &tended{})
		b.tended[queue].pools++
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, queue := range queues {
			b.tended[queue].pools--
			if b.tended[queue].pools == 0 {
				delete(b.tended, queue)
			}
		}
	}
}

// looking wipes the mark of a queue into which the caller is about to look, and
// tells whether there was one.
func (b *Bell) looking(queue string) (rung bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tended[queue]; t != nil {
		rung, t.rung = t.rung, false
	}
	return rung
}

// sleep returns the queue that s is woken for; or none after d, or when ctx ends.
func (b *Bell) sleep(ctx context.Context, s *sleeper, d time.Duration) (rungFor string) {
	if queue := b.lieDown(s); queue != "" {
		return queue
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case queue := <-s.woken:
		return queue
	case <-timer.C:
	case <-ctx.Done():
	}
	return b.getUp(s)
}

// lieDown makes s a sleeper, unless one of its queues was rung for.
func (b *Bell) lieDown(s *sleeper) (rungFor string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, queue := range s.queues {
		if t := b.tended[queue]; t != nil && t.rung {
			t.rung = false
			return queue
		}
	}
	b.sleepers = append(b.sleepers, s)
	return ""
}

// getUp ends the sleep of s by itself, and returns the queue of a ring that was
// quicker.
func (b *Bell) getUp(s *sleeper) (rungFor string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.remove(s) {
		return ""
	}
	return <-s.woken
}
