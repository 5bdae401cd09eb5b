package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/queue"
)

// taskWatch is what the flags of stats say, and the look before.
type taskWatch struct {
	output string
	every  time.Duration // 0: once
	before statsJSON
	at     time.Time // of before
}

// minWatch keeps a watch from being a load.
const minWatch = 100 * time.Millisecond

func newTasksStats() *cobra.Command {
	c, w := &config{}, taskWatch{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"one. Of each queue and state only the first 100000 tasks are counted, so that it costs little\n" +
			"whatever waits; where there are more, the numbers have a \"≥\". Types without a handler are\n" +
			"counted as \"other\"; of queues that are neither standard nor paused, the first 32.\n\n" +
			"With --watch, the second look on says how fast the waiting tasks grow or fall in number, and when\n" +
			"there will be none if that goes on: by the number, or, where it is not known, by the age of the\n" +
			"oldest." + outputHelp,
		Example: "  activityd tasks stats\n  activityd tasks stats --watch 2s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w.every != 0 && w.every < minWatch {
				return fmt.Errorf("--watch: is %v: want at least %v, or 0", w.every, minWatch)
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return w.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&w.every, "watch", 0, "look again after this time, until interrupted; 0: look once")
	outputFlag(f, &w.output)
	c.mysqlFlags(f)
	return cmd
}

// run prints the statistics, once or until ctx ends. A database that goes away
// during a watch does not end it.
func (w *taskWatch) run(ctx context.Context, q taskAdmin, out, errs io.Writer) error {
	if err := w.look(ctx, q, out); err != nil || w.every == 0 {
		return err
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := w.look(ctx, q, out)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, mysql.ErrUnavailable):
			fmt.Fprintf(errs, "activityd: %v\n", err)
		case err != nil:
			return err
		}
	}
}

// look prints the statistics of now.
func (w *taskWatch) look(ctx context.Context, q taskAdmin, out io.Writer) error {
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	stats := newStatsJSON(s, now)
	if !w.at.IsZero() {
		stats.compare(w.before, now.Sub(w.at))
	}
	w.before, w.at = stats, now
	if w.output == outputJSON {
		return newLineEncoder(out).Encode(stats)
	}
	if w.every > 0 {
		fmt.Fprintf(out, "\n%s, every %v\n", stats.At, w.every)
	}
	return stats.print(out)
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
	Queue         string  `json:"queue"`
	Paused        bool    `json:"paused"`
	Capped        bool    `json:"capped"`
	OldestSeconds float64 `json:"oldest_waiting_seconds"`
	// PerSecond is by how much the number of waiting tasks rises, below 0 falls, since the look
	// before; nil: there was none, or it is not known.
	PerSecond *float64 `json:"waiting_change_per_second,omitempty"`
	// EmptyIn is when no task will wait if that goes on; nil: that is not known, or they get no
	// fewer.
	EmptyIn *float64    `json:"empty_in_seconds,omitempty"`
	Types   []typeStats `json:"types"`
}

// compare sets what the changes since the look before say.
func (s statsJSON) compare(before statsJSON, since time.Duration) {
	for i := range s.Queues {
		q := &s.Queues[i]
		was := slices.IndexFunc(before.Queues, func(other queuesJSON) bool { return other.Queue == q.Queue })
		if was >= 0 {
			q.compare(&before.Queues[was], s.Limit, since.Seconds())
		}
	}
}

func (q *queuesJSON) compare(before *queuesJSON, limit int, seconds float64) {
	left, fall := q.OldestSeconds, (before.OldestSeconds-q.OldestSeconds)/seconds
	if now, was := q.sum().Waiting, before.sum().Waiting; now < limit && was < limit {
		rise := float64(now-was) / seconds
		q.PerSecond, left, fall = &rise, float64(now), -rise
	}
	if left > 0 && fall > 0 {
		left /= fall
		q.EmptyIn = &left
	}
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

// counts returns the numbers in the order of [queue.States], which is that of the columns.
func (t *typeStats) counts() [5]*int {
	return [...]*int{&t.Waiting, &t.Scheduled, &t.Running, &t.Dead, &t.Done}
}

// newStatsJSON sorts statistics into queues; the types keep their order.
func newStatsJSON(s queue.Stats, now time.Time) statsJSON {
	out := statsJSON{At: stamp(now), Limit: queue.StatsLimit, Queues: []queuesJSON{}, More: s.More}
	for _, state := range s.Queues {
		q := queuesJSON{Queue: state.Queue, Paused: state.Paused, Capped: state.Capped, OldestSeconds: state.Oldest.Seconds(), Types: []typeStats{}}
		for _, t := range s.Tasks {
			if t.Queue != state.Queue {
				continue
			}
			if n := len(q.Types); n == 0 || q.Types[n-1].Type != t.Kind {
				q.Types = append(q.Types, typeStats{Type: t.Kind})
			}
			last := &q.Types[len(q.Types)-1]
			*last.counts()[slices.Index(queue.States(), t.State)] = t.Count
		}
		out.Queues = append(out.Queues, q)
	}
	return out
}

// sum returns the numbers of all types together.
func (q *queuesJSON) sum() *typeStats {
	sum := &typeStats{Type: "all"}
	for i := range q.Types {
		for state, n := range q.Types[i].counts() {
			*sum.counts()[state] += *n
		}
	}
	return sum
}

// cells returns the type and the numbers of a row. A number may be larger where the
// sum of its state reached the limit.
func (q *queuesJSON) cells(t, sum *typeStats, limit int) string {
	cells := []string{oneLine(t.Type)}
	for state, n := range t.counts() {
		cell := strconv.Itoa(*n)
		if q.Capped && *sum.counts()[state] >= limit {
			cell = "≥" + cell
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, "\t")
}

// print writes a table with a row for each queue, and below it one for each of its
// types. Numbers that may be larger are marked.
func (s statsJSON) print(w io.Writer) error {
	if len(s.Queues) == 0 {
		_, err := fmt.Fprintln(w, "there are no tasks, and no queue is paused")
		return err
	}
	table := newTable(w)
	fmt.Fprintln(table, "QUEUE\tTYPE\tWAITING\tSCHEDULED\tRUNNING\tDEAD\tDONE\tOLDEST WAITING\tCHANGE/S\tEMPTY IN\tPAUSED") // Flush returns its error
	for _, q := range s.Queues {
		sum := q.sum()
		oldest, change, empty, paused := "-", "-", "-", "-"
		if sum.Waiting > 0 {
			oldest = shortDuration(seconds(q.OldestSeconds))
		}
		if q.PerSecond != nil {
			change = fmt.Sprintf("%+.0f", *q.PerSecond)
		}
		if q.EmptyIn != nil {
			empty = shortDuration(seconds(*q.EmptyIn))
		}
		if q.Paused {
			paused = "paused"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(q.Queue), q.cells(sum, sum, s.Limit), oldest, change, empty, paused)
		for i := range q.Types {
			fmt.Fprintf(table, "\t%s\t-\t-\t-\t-\n", q.cells(&q.Types[i], sum, s.Limit))
		}
	}
	if err := table.Flush(); err != nil || !s.More {
		return err
	}
	_, err := fmt.Fprintln(w, "there are tasks in more queues, which are not counted: activityd tasks list shows them")
	return err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
