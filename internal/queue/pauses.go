package queue

import "sync"

// pauses is what a pool knows of the queues that are paused. As long as it knows
// nothing, all of them are: a process that starts must not begin with what
// somebody paused for a reason.
type pauses struct {
	mu     sync.RWMutex
	known  bool
	paused map[string]bool
}

// allow tells whether tasks of the queue may start.
func (p *pauses) allow(queue string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known && !p.paused[queue]
}

// learn takes note of the queues that are paused now, and returns those of all
// that were and are not any more.
func (p *pauses) learn(paused, all []string) (resumed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make(map[string]bool, len(paused))
	for _, queue := range paused {
		now[queue] = true
	}
	for _, queue := range all {
		if (!p.known || p.paused[queue]) && !now[queue] {
			resumed = append(resumed, queue)
		}
	}
	p.known, p.paused = true, now
	return resumed
}
