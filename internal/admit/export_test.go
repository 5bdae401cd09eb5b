package admit

import "time"

// Held returns how many reads are under way, how many of them walk, and how many names and viewers are kept.
func (l *Limiter) Held() (used, walks, kept int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, l.walks, len(l.callers) + len(l.viewers)
}

// Limit returns the limit.
func (l *Limiter) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.law.limit
}

// Note is a look at the clock, as Run has.
func (l *Lateness) Note() { l.note(time.Now()) }

// Law is the law of the limit.
type Law struct{ law }

// NewLaw returns the law of a limiter.
func NewLaw(least, most int) *Law { return &Law{newLaw(least, most)} }

// Round is a round of reads that each took so long, a tenth of a second after the one before.
func (l *Law) Round(took time.Duration, wanted bool) {
	l.wanted = wanted
	for now := time.Now(); !l.note(took, now); {
		continue
	}
	<-time.After(roundTime)
}

// Limit returns the limit.
func (l *Law) Limit() int { return l.limit }
