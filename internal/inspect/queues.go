package inspect

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/queue"
)

// Queues says how full the queues are, and how that changes, as programs read it.
type Queues struct {
	At     string  `json:"at"`
	Limit  int     `json:"count_limit"`                    // of each queue and state, no more are counted
	Over   float64 `json:"changes_over_seconds,omitempty"` // between the two looks that the changes are from; 0: there are none
	Queues []Queue `json:"queues"`
	More   bool    `json:"more_queues"` // that are not counted
}

// Queue is the state of a queue.
type Queue struct {
	Queue  string  `json:"queue"`
	Paused bool    `json:"paused"`
	Capped bool    `json:"capped"`
	Oldest float64 `json:"oldest_waiting_seconds"`
	// Change is how many more tasks wait each second; nil: that is not known.
	Change *float64 `json:"waiting_change_per_second,omitempty"`
	// EmptyIn is when no task will wait if that goes on.
	EmptyIn *float64 `json:"empty_in_seconds,omitempty"`
	Types   []Kind   `json:"types"`
}

// Kind is the number of tasks of a type, by state.
type Kind struct {
	Type      string   `json:"type"`
	Waiting   int      `json:"waiting"`
	Scheduled int      `json:"scheduled"`
	Running   int      `json:"running"`
	Dead      int      `json:"dead"`
	Oldest    float64  `json:"oldest_waiting_seconds,omitempty"`
	Change    *float64 `json:"waiting_change_per_second,omitempty"`
}

// counts returns the numbers in the order of [queue.States], as the columns have it.
func (k *Kind) counts() [4]*int {
	return [...]*int{&k.Waiting, &k.Scheduled, &k.Running, &k.Dead}
}

// NewQueues sorts statistics into queues; the types keep their order. before are the statistics of so much earlier; nil: not known. Where
// not all tasks are counted, nothing is said of changes.
func NewQueues(s queue.Stats, before *queue.Stats, since time.Duration, now time.Time) Queues {
	out := Queues{At: Stamp(now), Limit: queue.StatsLimit, Queues: []Queue{}, More: s.More}
	var was Queues
	if before != nil && since > 0 {
		was, out.Over = NewQueues(*before, nil, 0, now), since.Seconds()
	}
	for _, one := range s.Queues {
		q := Queue{Queue: one.Queue, Paused: one.Paused, Capped: one.Capped, Oldest: one.Oldest.Seconds(), Types: []Kind{}}
		for _, t := range s.Tasks {
			if t.Queue != one.Queue {
				continue
			}
			k := q.kind(t.Kind)
			*k.counts()[slices.Index(queue.States(), t.State)] = t.Count
			if t.State == queue.Waiting {
				k.Oldest = max(0, now.Sub(t.Oldest).Seconds())
			}
		}
		if out.Over > 0 {
			q.compare(was.find(one.Queue), out.Over)
		}
		out.Queues = append(out.Queues, q)
	}
	return out
}

// find returns the queue of that name; an empty queue if there was none.
func (s Queues) find(name string) *Queue {
	i := slices.IndexFunc(s.Queues, func(q Queue) bool { return q.Queue == name })
	if i < 0 {
		return &Queue{}
	}
	return &s.Queues[i]
}

// compare sets how fast the waiting tasks change.
func (q *Queue) compare(was *Queue, over float64) {
	if q.Capped || was.Capped {
		return
	}
	rate := func(is, was int) *float64 {
		r := float64(is-was) / over
		return &r
	}
	for i := range q.Types {
		q.Types[i].Change = rate(q.Types[i].Waiting, was.kind(q.Types[i].Type).Waiting)
	}
	waiting := q.Sum().Waiting
	q.Change = rate(waiting, was.Sum().Waiting)
	if waiting > 0 && *q.Change < 0 {
		end := float64(waiting) / -*q.Change
		q.EmptyIn = &end
	}
}

// kind returns the type of that name, a new type if there is none.
func (q *Queue) kind(name string) *Kind {
	i := slices.IndexFunc(q.Types, func(k Kind) bool { return k.Type == name })
	if i < 0 {
		i = len(q.Types)
		q.Types = append(q.Types, Kind{Type: name})
	}
	return &q.Types[i]
}

// Sum returns the numbers of all types together.
func (q *Queue) Sum() *Kind {
	sum := &Kind{Type: "all", Oldest: q.Oldest, Change: q.Change}
	for i := range q.Types {
		for state, n := range q.Types[i].counts() {
			*sum.counts()[state] += *n
		}
	}
	return sum
}

// Table returns a row for each queue, and below it a row for each of its types. Numbers that may be larger are marked.
func (s Queues) Table() Table {
	t := Table{Head: []string{"QUEUE", "TYPE", "WAITING", "SCHEDULED", "RUNNING", "DEAD", "OLDEST WAITING", "CHANGE/S", "EMPTY IN", "PAUSED"}}
	for i := range s.Queues {
		q := &s.Queues[i]
		sum := q.Sum()
		paused := "-"
		if q.Paused {
			paused = "paused"
		}
		t.Rows = append(t.Rows, append(append([]string{OneLine(q.Queue)}, q.cells(sum, sum, s.Limit)...), q.end(sum.Waiting), paused))
		for k := range q.Types {
			t.Rows = append(t.Rows, append(append([]string{""}, q.cells(&q.Types[k], sum, s.Limit)...), "-", "-"))
		}
	}
	return t
}

// end says when no task waits any more.
func (q *Queue) end(waiting int) string {
	switch {
	case q.EmptyIn != nil:
		return Duration(time.Duration(min(*q.EmptyIn, 1e9) * float64(time.Second)))
	case waiting > 0 && q.Change != nil && *q.Change > 0:
		return "grows"
	}
	return "-"
}

// cells returns the type and the numbers of a row. A number may be larger where the
// sum of its state reached the limit.
func (q *Queue) cells(k, sum *Kind, limit int) []string {
	cells := []string{OneLine(k.Type)}
	for state, n := range k.counts() {
		cell := strconv.Itoa(*n)
		if q.Capped && *sum.counts()[state] >= limit {
			cell = "≥" + cell
		}
		cells = append(cells, cell)
	}
	oldest := "-"
	if k.Waiting > 0 {
		oldest = Duration(time.Duration(k.Oldest * float64(time.Second)))
	}
	change := "-"
	switch {
	case k.Change == nil:
	case *k.Change == 0:
		change = "0"
	case math.Abs(*k.Change) < 10:
		change = fmt.Sprintf("%+.1f", *k.Change)
	default:
		change = fmt.Sprintf("%+.0f", *k.Change)
	}
	return append(cells, oldest, change)
}
