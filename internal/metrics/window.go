package metrics

import (
	"sync"
	"time"
)

// windowSlots is into how many parts a window is divided: it forgets one of them
// at a time.
const windowSlots = 60

// ratio counts how many of the things of the last while were bad.
type ratio struct {
	span time.Duration
	now  func() time.Time

	mu    sync.Mutex
	slots [windowSlots]slot
}

// slot is what was counted in one part of the window.
type slot struct {
	number   int64 // of the part, counted from the beginning of time
	all, bad int
}

// add counts in bad of all.
func (r *ratio) add(all, bad int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := r.number()
	s := &r.slots[number%windowSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.all += all
	s.bad += bad
}

// value returns the share of the bad ones; false when there was nothing at all.
func (r *ratio) value() (share float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.number() - windowSlots
	all, bad := 0, 0
	for _, s := range &r.slots {
		if s.number > oldest {
			all += s.all
			bad += s.bad
		}
	}
	return float64(bad) / float64(max(all, 1)), all > 0
}

func (r *ratio) number() int64 { return r.now().UnixNano() / int64(r.span/windowSlots) }
