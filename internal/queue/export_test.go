package queue

import "time"

// SetMostKeys makes the queue remember fewer keys, and look at once how many there are.
func (q *MySQLQueue) SetMostKeys(most int) {
	q.keyLimit.most, q.keyLimit.again = most, time.Time{}
}

// SetMostKeys makes the queue remember fewer keys.
func (q *MemoryQueue) SetMostKeys(most int) { q.mostKeys = most }

// Forge makes a row of what a producer may write: it changes a task as no queue
// would, and leaves the dedupe key with it. A time of 0 stands for none.
func (q *MemoryQueue) Forge(id uint64, state State, dueAt int64, queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.open[id]
	r.state, r.dueAt, r.Queue = state, dueAt, queue
}
