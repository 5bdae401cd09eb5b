package inspect

import (
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/queue"
)

// Queues says how full the queues are, as programs read it.
type Queues struct {
	At     string  `json:"at"`
	Limit  int     `json:"count_limit"` // of each queue and state, no more are counted
	Queues []Queue `json:"queues"`
	More   bool    `json:"more_queues"` // that are not counted
}

// Queue is the state of a queue.
type Queue struct {
	Queue  string  `json:"queue"`
	Paused bool    `json:"paused"`
	Capped bool    `json:"capped"`
	Oldest float64 `json:"oldest_waiting_seconds"`
	Types  []Kind  `json:"types"`
}

// Kind is the number of tasks of a type, by state.
type Kind struct {
	Type      string  `json:"type"`
	Waiting   int     `json:"waiting"`
	Scheduled int     `json:"scheduled"`
	Running   int     `json:"running"`
	Dead      int     `json:"dead"`
	Oldest    float64 `json:"oldest_waiting_seconds,omitempty"`
}

// counts returns the numbers in the order of [queue.States], as the columns have it.
func (k *Kind) counts() [4]*int {
	return [...]*int{&k.Waiting, &k.Scheduled, &k.Running, &k.Dead}
}

// NewQueues sorts statistics into queues; the types keep their order.
func NewQueues(s queue.Stats, now time.Time) Queues {
	out := Queues{At: Stamp(now), Limit: queue.StatsLimit, Queues: []Queue{}, More: s.More}
	for _, one := range s.Queues {
		q := Queue{Queue: one.Queue, Paused: one.Paused, Capped: one.Capped, Oldest: one.Oldest.Seconds(), Types: []Kind{}}
		for _, t := range s.Tasks {
			if t.Queue != one.Queue {
				continue
			}
			i := slices.IndexFunc(q.Types, func(k Kind) bool { return k.Type == t.Kind })
			if i < 0 {
				i = len(q.Types)
				q.Types = append(q.Types, Kind{Type: t.Kind})
			}
			k := &q.Types[i]
			*k.counts()[slices.Index(queue.States(), t.State)] = t.Count
			if t.State == queue.Waiting {
				k.Oldest = max(0, now.Sub(t.Oldest).Seconds())
			}
		}
		out.Queues = append(out.Queues, q)
	}
	return out
}

// sum returns the numbers of all types together.
func (q *Queue) sum() *Kind {
	sum := &Kind{Type: "all", Oldest: q.Oldest}
	for i := range q.Types {
		for state, n := range q.Types[i].counts() {
			*sum.counts()[state] += *n
		}
	}
	return sum
}

// Table returns a row for each queue, and below it a row for each of its types. Numbers that may be larger are marked.
func (s Queues) Table() Table {
	t := Table{Head: []string{"QUEUE", "TYPE", "WAITING", "SCHEDULED", "RUNNING", "DEAD", "OLDEST WAITING", "PAUSED"}}
	for _, q := range s.Queues {
		sum := q.sum()
		paused := "-"
		if q.Paused {
			paused = "paused"
		}
		t.Rows = append(t.Rows, slices.Concat([]string{OneLine(q.Queue)}, q.cells(sum, sum, s.Limit), []string{paused}))
		for k := range q.Types {
			t.Rows = append(t.Rows, slices.Concat([]string{""}, q.cells(&q.Types[k], sum, s.Limit), []string{"-"}))
		}
	}
	return t
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
	return append(cells, oldest)
}
