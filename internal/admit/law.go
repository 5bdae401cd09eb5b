package admit

import (
	"slices"
	"time"
)

// The law of the limit, which the package documentation explains.
const (
	roundReads = 32                     // a round ends after so many proven reads,
	roundTime  = 100 * time.Millisecond // or after this time,
	roundLeast = 4                      // with so many
	fastFactor = 8                      // times the usual, below which the limit may rise
	slowFactor = 12                     // times the usual, above which it falls
	minUsual   = 500 * time.Microsecond // a read that needs less may need three times as long for no reason
	tryEvery   = time.Second            // between two rounds with twice as many
)

// law decides how many reads may be under way, by how long proven ones take.
type law struct {
	least, most int
	limit       int
	wanted      bool // a read had to wait in this round

	usual time.Duration // what they take where few are under way; 0: unknown
	took  []time.Duration
	began time.Time     // of the round
	tried time.Time     // when the last round with twice as many began
	slow  time.Duration // the median before it; 0: this is no such round
}

func newLaw(least, most int) law {
	return law{least: least, most: most, limit: least, took: make([]time.Duration, 0, roundReads)}
}

// waits takes note of a read that has to wait. Where reads walk they may be all that there is, as
// after Redis was emptied, and say nothing of how long a proven read would take: then the limit rises.
func (l *law) waits(walks bool, now time.Time) {
	l.wanted = true
	if walks && len(l.took) < roundLeast && now.Sub(l.began) >= roundTime {
		l.limit, l.began = min(l.limit+1, l.most), now
	}
}

// note takes note of a proven read that ended now, and reports whether that ended a round.
func (l *law) note(took time.Duration, now time.Time) bool {
	if len(l.took) == 0 && l.began.IsZero() {
		l.began = now
	}
	l.took = append(l.took, took)
	if n := len(l.took); n < roundReads && (n < roundLeast || now.Sub(l.began) < roundTime) {
		return false
	}
	slices.Sort(l.took)
	l.decide(l.took[len(l.took)/2], now)
	l.took, l.began, l.wanted = l.took[:0], now, false
	return true
}

// decide sets the limit after a round with this median.
func (l *law) decide(median time.Duration, now time.Time) {
	if l.slow > 0 { // twice as many were under way
		if median < l.slow*3/2 {
			l.usual = median // for many as for few
		} else {
			l.limit = l.least
		}
		l.slow = 0
		return
	}
	switch median = max(median, minUsual); {
	case l.usual == 0:
		l.usual = median
	case median < l.usual:
		l.usual -= (l.usual - median + 1) / 2
	}
	switch {
	case median <= fastFactor*l.usual:
		if l.wanted {
			l.limit = min(l.limit+1, l.most)
		}
	case median <= slowFactor*l.usual:
	case l.limit > l.least:
		l.limit = max(l.limit-max(l.limit/5, 1), l.least)
	case l.wanted && now.Sub(l.tried) >= tryEvery && l.least < l.most:
		l.tried, l.slow = now, median
		l.limit = min(2*l.least, l.most)
	}
}
