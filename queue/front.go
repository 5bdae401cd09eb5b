package queue

import "time"

// front is where claims of a queue begin while a look at the whole queue is slow.
//
// InnoDB keeps the index entries of claimed tasks until it purges them, never while a backup has a snapshot open. A look from the
// begin of the queue steps over all of them. So slow looks take a tenth of the time at most; the claims in between begin at the
// first task of the last look. They miss a task before it: of another priority, or one that comes back, or that commits long after
// it got its id. The task waits for the next look, ten times as long as the last look took, and 10 seconds at most.
type front struct {
	priority int
	id       uint64
	until    time.Time // of the next look at the whole queue
}

const (
	slowLook  = 5 * time.Millisecond
	restShare = 10
	maxRest   = 10 * time.Second
)

// front returns where a claim begins; use: not at the begin of the queue.
func (q *Queue) front(queue string) (f front, use bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f = q.fronts[queue]
	return f, time.Now().Before(f.until)
}

// looked notes the tasks that a look at a whole queue found, and how long it took.
func (q *Queue) looked(queue string, list []candidate, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.fronts, queue)
	if len(list) > 0 && took >= slowLook {
		q.fronts[queue] = front{list[0].Priority, list[0].ID, time.Now().Add(min(restShare*took, maxRest))}
	}
}
