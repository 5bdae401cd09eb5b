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
	is := queue.Stats{
		Tasks: []queue.TaskStats{
			{Queue: "default", Kind: "add_contact", State: queue.Waiting, Count: 60_000, Oldest: now.Add(-80 * time.Second)},
			{Queue: "default", Kind: "upload", State: queue.Dead, Count: 5, Oldest: now},
			{Queue: "default", Kind: "upload", State: queue.Waiting, Count: 40_000, Oldest: now.Add(-90 * time.Second)},
			{Queue: "refill", Kind: "refill", State: queue.Waiting, Count: 7, Oldest: now},
		},
		Queues: []queue.Summary{{Queue: "default", Capped: true, Oldest: 90 * time.Second}, {Queue: "fan_out", Paused: true}, {Queue: "refill"}},
	}
	before := queue.Stats{Queues: []queue.Summary{{Queue: "fan_out"}}}
	want := `QUEUE    TYPE         WAITING  SCHEDULED  RUNNING  DEAD  OLDEST WAITING  CHANGE/S  EMPTY IN  PAUSED
default  all          ≥100000  0          0        5     1m30s           -         -         -
         add_contact  ≥60000   0          0        0     1m20s           -         -         -
         upload       ≥40000   0          0        5     1m30s           -         -         -
fan_out  all          0        0          0        0     -               0         -         paused
refill   all          7        0          0        0     0s              +3.5      grows     -
         refill       7        0          0        0     0s              +3.5      -         -
`
	if diff := cmp.Diff(want, printed(inspect.NewQueues(is, &before, 2*time.Second, now).Table())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, row := range inspect.NewQueues(is, nil, 0, now).Table().Rows {
		if row[7]+row[8] != "--" {
			t.Errorf("after one look there are changes: %q", row)
		}
	}
}

func TestQueuesSayWhenABacklogEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, waiting int
		end             string
	}{
		"falls":  {10_000, 8000, "8s"},
		"rises":  {9_500, 10_000, "grows"},
		"stands": {10_000, 10_000, "-"},
		"gone":   {10_000, 0, "-"},
		"hardly": {99_999, 99_998, "2d07h"},
	} {
		stats := func(n int) queue.Stats {
			return queue.Stats{
				Tasks:  []queue.TaskStats{{Queue: "default", Kind: "upload", State: queue.Waiting, Count: n, Oldest: time.Now()}},
				Queues: []queue.Summary{{Queue: "default"}},
			}
		}
		before := stats(c.before)
		if got := inspect.NewQueues(stats(c.waiting), &before, 2*time.Second, time.Now()).Table().Rows[0][8]; got != c.end {
			t.Errorf("%s: ends in %s, want %s", name, got, c.end)
		}
	}
}
