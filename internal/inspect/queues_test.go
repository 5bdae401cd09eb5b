package inspect_test

import (
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// printed is a table as text.
func printed(t inspect.Table) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		_, _ = w.Write([]byte(strings.Join(row, "\t") + "\n"))
	}
	_ = w.Flush()
	return out.String()
}

func TestQueuesMarkWhatWasNotCountedToTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := queue.Look{Since: 2 * time.Second, About: map[string]int{"default": 2_300_000}, Stats: queue.Stats{
		Tasks: []queue.TaskStats{
			{Queue: "default", Kind: "add_contact", State: queue.Waiting, Count: 60_000, Oldest: now.Add(-80 * time.Second)},
			{Queue: "default", Kind: "upload", State: queue.Dead, Count: 5, Oldest: now},
			{Queue: "default", Kind: "upload", State: queue.Waiting, Count: 40_000, Oldest: now.Add(-90 * time.Second)},
			{Queue: "refill", Kind: "refill", State: queue.Waiting, Count: 7, Oldest: now},
		},
		Queues: []queue.Summary{{Queue: "default", Capped: true, Oldest: 90 * time.Second}, {Queue: "fan_out", Paused: true}, {Queue: "refill"}},
	}, Flows: []queue.Flow{
		{Queue: "default", Kind: "add_contact", Enqueued: 3, Started: 1000},
		{Queue: "default", Kind: "upload", Enqueued: 500, Started: 4},
		{Queue: "refill", Kind: "refill", Enqueued: 7, AtLeast: true},
		{Queue: "refill", Kind: "upload", Started: 1, AtLeast: true},
	}}
	want := `QUEUE    TYPE         WAITING   SCHEDULED  RUNNING  DEAD  OLDEST WAITING  ENQUEUED/S  STARTED/S  EMPTY IN  PAUSED
default  all          ≈2300000  0          0        5     1m30s           252         502        2h33m     -
         add_contact  ≥60000    0          0        0     1m20s           1.5         500        -         -
         upload       ≥40000    0          0        5     1m30s           250         2.0        -         -
fan_out  all          0         0          0        0     -               0           0          -         paused
refill   all          7         0          0        0     0s              ≥3.5        ≥0.5       grows     -
         refill       7         0          0        0     0s              ≥3.5        ≥0         -         -
         upload       0         0          0        0     -               ≥0          ≥0.5       -         -
`
	if diff := cmp.Diff(want, printed(inspect.NewQueues(l, now).Table())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l.Since = 0
	for _, row := range inspect.NewQueues(l, now).Table().Rows {
		if row[7]+row[8]+row[9] != "---" {
			t.Errorf("after one look there are rates: %q", row)
		}
	}
}

func TestQueuesSayWhenABacklogEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting, about, enqueued, started int
		end                               string
	}{
		"falls":      {8000, 0, 0, 2000, "8s"},
		"rises":      {10_000, 0, 700, 200, "grows"},
		"stands":     {10_000, 0, 500, 500, "-"},
		"gone":       {0, 0, 0, 10_000, "-"},
		"many":       {queue.StatsLimit, 1_000_000, 1000, 21_000, "1m40s"},
		"hardly":     {100_000, 0, 0, 1, "2d07h"},
		"hardly any": {queue.StatsLimit, 1 << 62, 0, 1, "11574d01h"},
	} {
		l := queue.Look{Since: 2 * time.Second, About: map[string]int{"default": c.about}, Stats: queue.Stats{
			Tasks:  []queue.TaskStats{{Queue: "default", Kind: "upload", State: queue.Waiting, Count: c.waiting, Oldest: time.Now()}},
			Queues: []queue.Summary{{Queue: "default"}},
		}, Flows: []queue.Flow{{Queue: "default", Kind: "upload", Enqueued: c.enqueued, Started: c.started}}}
		if got := inspect.NewQueues(l, time.Now()).Table().Rows[0][9]; got != c.end {
			t.Errorf("%s: ends in %s, want %s", name, got, c.end)
		}
	}
}
