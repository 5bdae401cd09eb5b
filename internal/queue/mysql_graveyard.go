package queue

import (
	"sync"
	"time"
)

// graveyard remembers, for each queue, where the waiting tasks begin.
//
// InnoDB keeps the index entries of claimed tasks until it purges them, and that
// may take long: while a backup holds a snapshot open, it does not purge at all.
// A claim that begins at the front of the queue steps over all of them, each
// time. So the front is looked at only as often as takes a tenth of the time;
// the claims in between begin where that look found the first waiting task. The
// cost of a claim then does not grow with what InnoDB still has to bury.
//
// What is missed meanwhile is what comes to be before the mark: a task of another
// priority, one that another process puts back, one of a transaction that took
// its id early and committed late. They wait for the next look from the front,
// as a rule some milliseconds, and younger ones overtake them. When it happens
// in this process, [graveyard.forget] makes the next claim look.
type graveyard struct {
	mu    sync.Mutex
	marks map[string]mark
	now   func() time.Time
}

// restFactor is how many times as long as it took the front is left in peace
// after a look, and mostRest how long at most. A claim that finds fewer tasks
// behind the mark than it wants looks from the front after all, if that takes no
// longer than cheapLook: then an empty claim says that nothing waits, as long as
// InnoDB buries its dead.
const (
	restFactor = 9
	mostRest   = 5 * time.Second
	cheapLook  = 20 * time.Millisecond
)

// mark is what is known of a queue.
type mark struct {
	from   position  // where the waiting tasks begin
	last   position  // the last one that was claimed
	usable bool      // all that waited at the last look have the priority of from
	again  time.Time // when the front is to be looked at again
	cheap  bool      // it is quickly done
	full   bool      // the last claim found all that it wanted: there may be more
}

// position is a place in a queue.
type position struct {
	priority int
	id       uint64
}

func newGraveyard(now func() time.Time) *graveyard {
	return &graveyard{marks: make(map[string]mark), now: now}
}

// begin returns where a claim is to begin; front says: at the front.
func (g *graveyard) begin(queue string) (from position, front bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.marks[queue]
	return m.from, !m.usable || !g.now().Before(m.again) || m.cheap && !m.full
}

// found notes what a claim found, in order, whether that was all that it wanted,
// and how long it looked. When a look from the front finds nothing, what is buried
// ends at the last task that was claimed.
func (g *graveyard) found(queue string, list []Task, full, front bool, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.marks[queue]
	m.full = full
	if len(list) > 0 {
		m.last = positionOf(list[len(list)-1])
	}
	if front {
		m.again, m.cheap = g.now().Add(min(restFactor*took, mostRest)), took <= cheapLook
		m.from, m.usable = m.last, m.last.id != 0
		if len(list) > 0 {
			m.from = positionOf(list[0])
			m.usable = m.from.priority == m.last.priority
		}
	}
	g.marks[queue] = m
}

// cheap tells whether a look from the front is quickly done.
func (g *graveyard) cheap(queue string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.marks[queue].cheap
}

func positionOf(t Task) position { return position{t.Priority, t.ID} }

// forget makes the next claims look at the front, because a task came to be
// before a mark.
func (g *graveyard) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.marks)
}

// enqueued looks for tasks that come to be before a mark, though they are new.
func (g *graveyard) enqueued(batch []New) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range batch {
		if m, ok := g.marks[n.Queue]; ok && m.from.priority != n.Priority {
			delete(g.marks, n.Queue)
		}
	}
}
