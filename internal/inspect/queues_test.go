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
	want := `QUEUE    TYPE         WAITING  SCHEDULED  RUNNING  DEAD  OLDEST WAITING  PAUSED
default  all          ≥100000  0          0        5     1m30s           -
         add_contact  ≥60000   0          0        0     1m20s           -
         upload       ≥40000   0          0        5     1m30s           -
fan_out  all          0        0          0        0     -               paused
refill   all          7        0          0        0     0s              -
         refill       7        0          0        0     0s              -
`
	if diff := cmp.Diff(want, printed(inspect.NewQueues(is, now).Table())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
