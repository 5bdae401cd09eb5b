package queue

import (
	"time"
)

// SetMaxKeys makes the queue remember fewer keys, and look at once how many there are.
func (q *Queue) SetMaxKeys(most int) {
	q.keyLimit.most, q.keyLimit.again = most, time.Time{}
}

// LookCheaply makes a claim that finds too few tasks look at the front of its queue, however
// long a busy machine takes for that.
func (q *Queue) LookCheaply() { q.cursors.cheapLook = time.Hour }

// Age has the look be so long ago.
func (l *Look) Age(d time.Duration) { l.at = l.at.Add(-d) }
