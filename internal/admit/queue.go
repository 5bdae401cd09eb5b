package admit

import "slices"

// waiter is a read that waits. What is decided is set before decided is closed.
type waiter struct {
	class   Class
	by      By
	decided chan struct{}
	place   *place
	err     error // why there is no place
}

// queue is what waits, the oldest first. It is short, so all of it is looked at.
type queue []*waiter

func (q *queue) push(w *waiter) { *q = append(*q, w) }

func (q *queue) find(w *waiter) int { return slices.Index(*q, w) }

func (q *queue) remove(i int) *waiter {
	w := (*q)[i]
	*q = slices.Delete(*q, i, i+1)
	return w
}

// next returns the newest one of the caller that has the fewest under way.
func (q *queue) next(underWay map[string]int) int {
	best := len(*q) - 1
	for i := best - 1; i >= 0; i-- {
		if underWay[(*q)[i].by.Caller] < underWay[(*q)[best].by.Caller] {
			best = i
		}
	}
	return best
}

// worst returns the oldest one of the caller of which the most wait.
func (q *queue) worst() int {
	waiting, worst := make(map[string]int), 0
	for _, w := range *q {
		waiting[w.by.Caller]++
	}
	for i, w := range *q {
		if waiting[w.by.Caller] > waiting[(*q)[worst].by.Caller] {
			worst = i
		}
	}
	return worst
}
