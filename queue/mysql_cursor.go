package queue

import (
	"sync"
	"time"
)

// cursors remembers, for each queue, where the next claim of this process begins:
// at the last task that was claimed.
//
// InnoDB keeps the index entries of claimed tasks until it purges them, which may
// take long: while a backup holds a snapshot open, it does not purge at all. A
// claim that begins at the front of the queue steps over all of them, and over the
// rows that other claims have locked. So looks that are not quick take a tenth of the time at
// most, and the cost of a claim does not grow with what is not purged.
//
// The claims in between miss the tasks before the cursor: one of another priority, one
// that another process puts back, one whose transaction took its id early and committed
// late, one that was locked when a claim passed. They wait for the next look at the
// front, nine times as long as the last one took and 5 s at most, and younger tasks overtake them. When this process
// causes it, [cursors.forget] makes the next claim look.
type cursors struct {
	mu        sync.Mutex
	of        map[string]cursor // by queue
	now       func() time.Time
	cheapLook time.Duration
}

// After a look at the front there is none for restFactor times as long as it took,
// maxRest at most. There are two exceptions: a claim that finds nothing
// looks at the front if the last look took no longer than cheapLook, and one that finds fewer tasks than it
// wants if it took a tenth of that. So an empty claim says that nothing waits, unless InnoDB does not purge.
const (
	restFactor = 9
	maxRest    = 5 * time.Second
	cheapLook  = 20 * time.Millisecond
)

// cursor is what is known of a queue.
type cursor struct {
	from   position      // the last task that was claimed
	usable bool          // the last look at the front found one priority only, that of from
	again  time.Time     // when the front is to be read again
	took   time.Duration // the last look at the front
	full   bool          // the last claim found all that it wanted: there may be more
}

// position is a place in a queue.
type position struct {
	priority int
	id       uint64
}

func newCursors(now func() time.Time) *cursors {
	return &cursors{of: make(map[string]cursor), now: now, cheapLook: cheapLook}
}

// begin returns where a claim is to begin; front says: at the front.
func (c *cursors) begin(queue string) (from position, front bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := c.of[queue]
	return is.from, !is.usable || !c.now().Before(is.again) || !is.full && is.took <= c.cheapLook/10
}

// found notes the first and the last task that a claim found, if any, whether that was all that it wanted,
// whether it looked at the front, and how long it took.
func (c *cursors) found(queue string, first, last position, full, front bool, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := c.of[queue]
	is.full = full
	if last.id != 0 {
		is.from = last
	}
	if front {
		is.again, is.took = c.now().Add(min(restFactor*took, maxRest)), took
		is.usable = is.from.id != 0 && (first.id == 0 || first.priority == is.from.priority)
	}
	c.of[queue] = is
}

// cheap reports whether a look at the front is quickly done, by a claim that found some tasks, or none.
func (c *cursors) cheap(queue string, some bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.cheapLook
	if some {
		limit /= 10
	}
	return c.of[queue].took <= limit
}

// forget makes the next claims look at the front, because a task came to be
// before a cursor.
func (c *cursors) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.of)
}

// enqueued looks for tasks that come to be before a cursor, though they are new.
func (c *cursors) enqueued(batch []New) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range batch {
		if is, ok := c.of[n.Queue]; ok && is.from.priority != n.Priority {
			delete(c.of, n.Queue)
		}
	}
}
