package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/queue"
)

// taskStater is a queue that says how full it is.
type taskStater interface {
	Stats(ctx context.Context) (queue.Stats, error)
}

// typeStats is the number of tasks of one type, by state.
type typeStats struct {
	Type      string `json:"type"`
	Waiting   int    `json:"waiting"`
	Scheduled int    `json:"scheduled"`
	Running   int    `json:"running"`
	Dead      int    `json:"dead"`
	Done      int    `json:"done"`
}

// in returns the place of a state's number, in a row of all states.
func (t *typeStats) in(s queue.State) *int {
	switch s {
	case queue.Waiting:
		return &t.Waiting
	case queue.Scheduled:
		return &t.Scheduled
	case queue.Running:
		return &t.Running
	case queue.Dead:
		return &t.Dead
	case queue.Done:
		return &t.Done
	}
	return new(int) // a state that this version does not know
}

// queueStats is one queue: its types and their sum.
type queueStats struct {
	queue.Summary

	sum   typeStats
	types []typeStats
}

// byQueue sorts statistics into queues; the types keep their order.
func byQueue(s queue.Stats) []queueStats {
	out := make([]queueStats, len(s.Queues))
	for i, queue := range s.Queues {
		out[i].Summary = queue
		for _, t := range s.Tasks {
			if t.Queue == queue.Queue {
				out[i].count(t)
			}
		}
	}
	return out
}

func (q *queueStats) count(t queue.TaskStats) {
	if n := len(q.types); n == 0 || q.types[n-1].Type != t.Kind {
		q.types = append(q.types, typeStats{Type: t.Kind})
	}
	*q.types[len(q.types)-1].in(t.State) += t.Count
	*q.sum.in(t.State) += t.Count
}

// cells returns the numbers of a row, those that may be larger marked.
func (q *queueStats) cells(row *typeStats) (cells []string) {
	for _, s := range queue.States() {
		cell := strconv.Itoa(*row.in(s))
		if q.Capped && *q.sum.in(s) >= queue.StatsLimit {
			cell = "≥" + cell
		}
		cells = append(cells, cell)
	}
	return cells
}

// printStats writes a table with a row for each queue, and below it one for each
// of its types.
func printStats(w io.Writer, s queue.Stats) error {
	if len(s.Queues) == 0 {
		_, err := fmt.Fprintln(w, "there are no tasks, and no queue is paused")
		return err
	}
	table := newTextTable(w, "QUEUE", "TYPE", "WAITING", "SCHEDULED", "RUNNING", "DEAD", "DONE", "OLDEST WAITING", "")
	for _, q := range byQueue(s) {
		oldest, paused := "-", ""
		if q.sum.Waiting > 0 {
			oldest = shortDuration(q.Oldest)
		}
		if q.Paused {
			paused = "paused"
		}
		table.add(append(append([]string{oneLine(q.Queue), "all"}, q.cells(&q.sum)...), oldest, paused)...)
		for i := range q.types {
			t := &q.types[i]
			table.add(append(append([]string{"", oneLine(t.Type)}, q.cells(t)...), "", "")...)
		}
	}
	if err := table.flush(); err != nil || !s.More {
		return err
	}
	_, err := fmt.Fprintln(w, "there are tasks in more queues, which are not counted: activityd tasks list shows them")
	return err
}

// statsJSON is the statistics as other programs read them.
type statsJSON struct {
	At     string       `json:"at"`
	Limit  int          `json:"count_limit"` // of each queue and state, no more are counted
	Queues []queuesJSON `json:"queues"`
	More   bool         `json:"more_queues"` // that are not counted
}

// queuesJSON is one queue.
type queuesJSON struct {
	Queue         string      `json:"queue"`
	Paused        bool        `json:"paused"`
	Capped        bool        `json:"capped"`
	OldestSeconds float64     `json:"oldest_waiting_seconds"`
	Types         []typeStats `json:"types"`
}

func newStatsJSON(s queue.Stats, now time.Time) statsJSON {
	out := statsJSON{At: stamp(now), Limit: queue.StatsLimit, Queues: []queuesJSON{}, More: s.More}
	for _, q := range byQueue(s) {
		types := append([]typeStats{}, q.types...)
		out.Queues = append(out.Queues, queuesJSON{
			Queue: q.Queue, Paused: q.Paused, Capped: q.Capped, OldestSeconds: q.Oldest.Seconds(), Types: types,
		})
	}
	return out
}
