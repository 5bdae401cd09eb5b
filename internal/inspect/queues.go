package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/queue"
)

// Queues says how full the queues are, and how fast that changes, as other programs read it.
type Queues struct {
	At     string  `json:"at"`
	Limit  int     `json:"count_limit"`                  // of each queue and state, no more are counted
	Over   float64 `json:"rates_over_seconds,omitempty"` // between the two looks that the rates are from; 0: there are none
	Queues []Queue `json:"queues"`
	More   bool    `json:"more_queues"` // that are not counted
}

// Queue is one queue.
type Queue struct {
	Queue  string  `json:"queue"`
	Paused bool    `json:"paused"`
	Capped bool    `json:"capped"`
	Oldest float64 `json:"oldest_waiting_seconds"`
	// About is about how many tasks wait where they are more than are counted.
	About int `json:"waiting_about,omitempty"`
	Rates
	// EmptyIn is when no task will wait if that goes on, and Grows says that more and more wait.
	EmptyIn *float64 `json:"empty_in_seconds,omitempty"`
	Grows   bool     `json:"grows,omitempty"`
	Types   []Kind   `json:"types"`
}

// Rates are how fast tasks come and go, by [queue.Flow]; nil: that is not known.
type Rates struct {
	Enqueued *float64 `json:"enqueued_per_second,omitempty"`
	Started  *float64 `json:"started_per_second,omitempty"`
	// AtLeast: as many more may have come and gone between the looks.
	AtLeast bool `json:"rates_at_least,omitempty"`
}

// Kind is the number of tasks of one type, by state.
type Kind struct {
	Type      string  `json:"type"`
	Waiting   int     `json:"waiting"`
	Scheduled int     `json:"scheduled"`
	Running   int     `json:"running"`
	Dead      int     `json:"dead"`
	Oldest    float64 `json:"oldest_waiting_seconds,omitempty"`
	Rates
}

// counts returns the numbers in the order of [queue.States], which is that of the columns.
func (k *Kind) counts() [4]*int {
	return [...]*int{&k.Waiting, &k.Scheduled, &k.Running, &k.Dead}
}

// NewQueues sorts a look into queues; the types keep their order.
func NewQueues(l queue.Look, now time.Time) Queues {
	out := Queues{At: Stamp(now), Limit: queue.StatsLimit, Over: l.Since.Seconds(), Queues: []Queue{}, More: l.More}
	for _, s := range l.Queues {
		q := Queue{Queue: s.Queue, Paused: s.Paused, Capped: s.Capped, Oldest: s.Oldest.Seconds(), About: l.About[s.Queue], Types: []Kind{}}
		for _, t := range l.Tasks {
			if t.Queue != s.Queue {
				continue
			}
			k := q.kind(t.Kind)
			*k.counts()[slices.Index(queue.States(), t.State)] = t.Count
			if t.State == queue.Waiting {
				k.Oldest = max(0, now.Sub(t.Oldest).Seconds())
			}
		}
		if l.Since > 0 {
			q.setRates(l)
		}
		out.Queues = append(out.Queues, q)
	}
	return out
}

// kind returns the type of that name, a new one if there is none.
func (q *Queue) kind(name string) *Kind {
	i := slices.IndexFunc(q.Types, func(k Kind) bool { return k.Type == name })
	if i < 0 {
		i = len(q.Types)
		q.Types = append(q.Types, Kind{Type: name})
	}
	return &q.Types[i]
}

// setRates sets what came and went, and what follows from that. What was not seen came and went alike, so
// the difference of the two is right in any case.
func (q *Queue) setRates(l queue.Look) {
	q.Rates = newRates(queue.Flow{}, l.Since)
	for i := range q.Types {
		q.Types[i].Rates = newRates(queue.Flow{}, l.Since)
	}
	var sum queue.Flow
	for _, f := range l.Flows {
		if f.Queue == q.Queue {
			q.kind(f.Kind).Rates = newRates(f, l.Since)
			sum.Enqueued, sum.Started, sum.AtLeast = sum.Enqueued+f.Enqueued, sum.Started+f.Started, sum.AtLeast || f.AtLeast
		}
	}
	q.Rates = newRates(sum, l.Since)
	waiting, falls := max(q.Sum().Waiting, q.About), *q.Started-*q.Enqueued
	if waiting > 0 && falls > 0 {
		end := float64(waiting) / falls
		q.EmptyIn = &end
	}
	q.Grows = falls < 0
}

func newRates(f queue.Flow, over time.Duration) Rates {
	enqueued, started := float64(f.Enqueued)/over.Seconds(), float64(f.Started)/over.Seconds()
	return Rates{&enqueued, &started, f.AtLeast}
}

// Sum returns the numbers of all types together.
func (q *Queue) Sum() *Kind {
	sum := &Kind{Type: "all", Oldest: q.Oldest, Rates: q.Rates}
	for i := range q.Types {
		for state, n := range q.Types[i].counts() {
			*sum.counts()[state] += *n
		}
	}
	return sum
}

// Table returns a row for each queue, and below it one for each of its types. Numbers that may be larger, and those that are
// estimated, are marked.
func (s Queues) Table() Table {
	t := Table{Head: []string{"QUEUE", "TYPE", "WAITING", "SCHEDULED", "RUNNING", "DEAD", "OLDEST WAITING", "ENQUEUED/S", "STARTED/S", "EMPTY IN", "PAUSED"}}
	for i := range s.Queues {
		q := &s.Queues[i]
		sum := q.Sum()
		paused := "-"
		if q.Paused {
			paused = "paused"
		}
		row := append([]string{OneLine(q.Queue)}, q.cells(sum, sum, s.Limit)...)
		if q.About > 0 {
			row[2] = "≈" + strconv.Itoa(q.About)
		}
		t.Rows = append(t.Rows, append(row, q.end(sum.Waiting), paused))
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
	case waiting > 0 && q.Grows:
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
	return append(cells, oldest, k.rate(k.Enqueued), k.rate(k.Started))
}

// rate returns a rate as a cell.
func (r Rates) rate(of *float64) string {
	if of == nil {
		return "-"
	}
	text := fmt.Sprintf("%.0f", *of)
	if *of > 0 && *of < 10 {
		text = fmt.Sprintf("%.1f", *of)
	}
	if r.AtLeast {
		text = "≥" + text
	}
	return text
}
