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

	all Kind // the sum of the types
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
	for _, is := range s.Queues {
		q := Queue{Queue: is.Queue, Paused: is.Paused, Capped: is.Capped, Oldest: is.Oldest.Seconds(), Types: []Kind{}}
		q.all = Kind{Type: "all", Oldest: q.Oldest}
		for _, t := range s.Tasks {
			if t.Queue != is.Queue {
				continue
			}
			i := slices.IndexFunc(q.Types, func(k Kind) bool { return k.Type == t.Kind })
			if i < 0 {
				i = len(q.Types)
				q.Types = append(q.Types, Kind{Type: t.Kind})
			}
			state := slices.Index(queue.States(), t.State)
			*q.Types[i].counts()[state] += t.Count
			*q.all.counts()[state] += t.Count
			if t.State == queue.Waiting {
				q.Types[i].Oldest = max(0, now.Sub(t.Oldest).Seconds())
			}
		}
		out.Queues = append(out.Queues, q)
	}
	return out
}

// Table returns a row for each queue, and below it a row for each of its types. A number may be larger where the sum of
// its state reached the limit, and is marked.
func (s Queues) Table() Table {
	t := Table{Head: []string{"QUEUE", "TYPE", "WAITING", "SCHEDULED", "RUNNING", "DEAD", "OLDEST WAITING", "PAUSED"}}
	for _, q := range s.Queues {
		name, paused := OneLine(q.Queue), "-"
		if q.Paused {
			paused = "paused"
		}
		for _, k := range append([]Kind{q.all}, q.Types...) {
			row := []string{name, OneLine(k.Type)}
			for state, n := range k.counts() {
				mark := ""
				if q.Capped && *q.all.counts()[state] >= s.Limit {
					mark = "≥"
				}
				row = append(row, mark+strconv.Itoa(*n))
			}
			oldest := "-"
			if k.Waiting > 0 {
				oldest = Duration(time.Duration(k.Oldest * float64(time.Second)))
			}
			t.Rows = append(t.Rows, append(row, oldest, paused))
			name, paused = "", "-"
		}
	}
	return t
}
