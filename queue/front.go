package queue

import "time"

// front is where the next claims of a queue begin while it is slow to look at all of it.
//
// InnoDB keeps the index entries of tasks that were claimed until it purges them, which it does not do at all while a
// backup has a snapshot open. A look from the begin of the queue steps over all of them. So looks that are slow
// take a tenth of the time at most, and the claims in between begin at the task that was first a second ago.
//
// They miss a task before that: of another priority, or one that comes back, or whose transaction took its id long before it
// committed. It waits for the next look, ten times as long as the last one took, and 10 seconds at most.
type front struct {
	priority int
	id, next uint64    // next takes the place of id at moves
	moves    time.Time //
	until    time.Time // then all is looked at again
}

const (
	slowLook  = 5 * time.Millisecond
	restShare = 10
	maxRest   = 10 * time.Second
)

// front returns where a claim begins; use: not at the begin of the queue.
func (m *memory) front(queue string) (f front, use bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f = m.fronts[queue]
	return f, time.Now().Before(f.until)
}

// looked notes what a look found, which began at the front if that was used, and how long it took.
func (m *memory) looked(queue string, list []candidate, used bool, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	f, known := m.fronts[queue]
	switch {
	case len(list) == 0 && !used:
		delete(m.fronts, queue)
	case len(list) == 0:
	case !used && took < slowLook:
		delete(m.fronts, queue)
	case !used:
		m.fronts[queue] = front{list[0].Priority, list[0].ID, list[0].ID, at.Add(time.Second), at.Add(min(restShare*took, maxRest))}
	case known && at.After(f.moves):
		f.id, f.next, f.moves = f.next, max(f.next, list[0].ID), at.Add(time.Second)
		m.fronts[queue] = f
	}
}

// forgetFronts makes the next claims of queues look at all, because tasks came back.
func (m *memory) forgetFronts(queues map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue := range queues {
		delete(m.fronts, queue)
	}
}
