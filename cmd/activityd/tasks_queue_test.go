package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestPauseAndResumeAQueue(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	enqueueUploads(t, o, 1, 1)
	for _, step := range []struct{ deed, want string }{
		{"resume", "was not paused"}, {"pause", "is paused"}, {"pause", "was paused already"},
	} {
		if out, errs := o.succeed(t, step.deed, "default"); !strings.Contains(out, "queue default "+step.want) || errs != "" {
			t.Errorf("%s: %q, %q", step.deed, out, errs)
		}
	}
	paused, err := o.Paused(t.Context())
	must(t, err)
	if !slices.Equal(paused, []string{"default"}) {
		t.Errorf("paused are %v", paused)
	}
	if out, _ := o.succeed(t, "stats"); !strings.HasSuffix(strings.Split(out, "\n")[1], "paused") {
		t.Errorf("stats:\n%s", out)
	}
	o.succeed(t, "resume", "default")
	if paused, err := o.Paused(t.Context()); err != nil || len(paused) != 0 {
		t.Errorf("paused are %v, %v", paused, err)
	}
}

func TestAStrangeQueueIsWarnedOf(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const warning = `no task is in a queue "defaults", and it is none of default, fan_out, fan_out_slots, refill, notify, push, push_urgent: is it misspelt?`
	for _, step := range []struct {
		deed, out string
		warned    bool
	}{
		{"resume", "was not paused", true}, {"pause", "is paused", true}, {"pause", "was paused already", false}, {"resume", "is resumed", false},
	} {
		if out, errs := o.succeed(t, step.deed, "defaults"); !strings.Contains(out, "queue defaults "+step.out) || strings.Contains(errs, warning) != step.warned {
			t.Errorf("%s: %q, %q", step.deed, out, errs)
		}
	}
	own := tasks.NewUpload(1)
	own.Queue = "own"
	_, err := o.Enqueue(t.Context(), []queue.New{own})
	must(t, err)
	if _, errs := o.succeed(t, "pause", "own"); errs != "" {
		t.Errorf("a queue with tasks: %q", errs)
	}
	if code, _, errs := o.tasks(t, "pause", strings.Repeat("q", 33)); code != 1 || !strings.Contains(errs, "queue") {
		t.Errorf("a name that is too long: exit code %d, %q", code, errs)
	}
}

func TestStatsCountWhatThereIs(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if out, _ := o.succeed(t, "stats"); out != "there are no tasks, and no queue is paused\n" {
		t.Errorf("without tasks: %q", out)
	}
	if out, _ := o.succeed(t, "stats", "-o=json"); !strings.Contains(out, `"count_limit":100000,"queues":[]`) {
		t.Errorf("without tasks: %q", out)
	}
	makeEveryState(t, o)
	out, _ := o.succeed(t, "stats")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("printed\n%s", out)
	}
	for i, want := range []string{
		"QUEUE TYPE WAITING SCHEDULED RUNNING DEAD DONE OLDEST WAITING", "default all 1 1 1 1 0", "add_contact 1 0 0 0 0", "upload 0 1 1 1 0",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	out, _ = o.succeed(t, "stats", "--output=json")
	var got statsJSON
	must(t, json.Unmarshal([]byte(out), &got))
	if len(got.Queues) != 1 || got.Queues[0].OldestSeconds < 0 || got.Queues[0].OldestSeconds > 600 {
		t.Fatalf("as JSON: %s", out)
	}
	if diff := cmp.Diff([]typeStats{{Type: "add_contact", Waiting: 1}, {Type: "upload", Scheduled: 1, Running: 1, Dead: 1}}, got.Queues[0].Types); diff != "" {
		t.Errorf("as JSON (-want +got):\n%s", diff)
	}
}

func TestStatsMarkWhatTheyDidNotCountToTheEnd(t *testing.T) {
	t.Parallel()
	s := queue.Stats{
		Tasks: []queue.TaskStats{
			{Queue: "default", Kind: "add_contact", State: queue.Waiting, Count: 60_000},
			{Queue: "default", Kind: "upload", State: queue.Dead, Count: 5},
			{Queue: "default", Kind: "upload", State: queue.Waiting, Count: 40_000},
			{Queue: "refill", Kind: "refill", State: queue.Waiting, Count: 7},
		},
		Queues: []queue.Summary{{Queue: "default", Capped: true, Oldest: 90 * time.Second}, {Queue: "fan_out", Paused: true}, {Queue: "refill"}},
	}
	var out strings.Builder
	must(t, newStatsJSON(s, time.Now()).print(&out))
	want := `QUEUE    TYPE         WAITING  SCHEDULED  RUNNING  DEAD  DONE  OLDEST WAITING  CHANGE/S  EMPTY IN  PAUSED
default  all          ≥100000  0          0        5     0     1m30s           -         -         -
         add_contact  ≥60000   0          0        0     0     -               -         -         -
         upload       ≥40000   0          0        5     0     -               -         -         -
fan_out  all          0        0          0        0     0     -               -         -         paused
refill   all          7        0          0        0     0     0s              -         -         -
         refill       7        0          0        0     0     -               -         -         -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The second look says how fast a backlog falls and when it will be gone: one that was counted
// by its number, a larger one by the age of its oldest task.
func TestStatsSayWhenABacklogEnds(t *testing.T) {
	t.Parallel()
	look := func(number int, oldest time.Duration) statsJSON {
		return newStatsJSON(queue.Stats{
			Tasks:  []queue.TaskStats{{Queue: "default", Kind: "upload", State: queue.Waiting, Count: number}},
			Queues: []queue.Summary{{Queue: "default", Capped: number == queue.StatsLimit, Oldest: oldest}},
		}, time.Now())
	}
	for name, c := range map[string]struct {
		before, now statsJSON
		change, end string
	}{
		"falls":             {look(10_000, time.Minute), look(8000, time.Minute), "-1000", "8s"},
		"rises":             {look(10_000, time.Minute), look(10_500, time.Minute), "+250", "-"},
		"stands":            {look(10_000, time.Minute), look(10_000, 30*time.Second), "+0", "-"},
		"gone":              {look(10_000, time.Minute), look(0, 0), "-5000", "-"},
		"more than counted": {look(queue.StatsLimit, 10*time.Minute), look(queue.StatsLimit, 590*time.Second), "-", "1m58s"},
		"more, not reduced": {look(queue.StatsLimit, time.Minute), look(queue.StatsLimit, 62*time.Second), "-", "-"},
		"more, now counted": {look(queue.StatsLimit, time.Minute), look(90_000, 50*time.Second), "-", "10s"},
		"a new queue":       {newStatsJSON(queue.Stats{}, time.Now()), look(5, time.Second), "-", "-"},
	} {
		c.now.compare(c.before, 2*time.Second)
		var out strings.Builder
		must(t, c.now.print(&out))
		row := strings.Fields(strings.Split(out.String(), "\n")[1])
		if got := row[8:10]; got[0] != c.change || got[1] != c.end {
			t.Errorf("%s: change and end are %v, want %s %s", name, got, c.change, c.end)
		}
	}
}

// stater is a queue with the statistics that stats returns.
type stater struct {
	taskAdmin

	stats func() (queue.Stats, error)
}

func (s stater) Stats(context.Context) (queue.Stats, error) { return s.stats() }

func TestWatchingGoesOnUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		looks := 0
		q := stater{stats: func() (queue.Stats, error) {
			looks++
			if looks == 2 {
				return queue.Stats{}, mysql.ErrUnavailable
			}
			return queue.Stats{}, nil
		}}
		var out, errs strings.Builder
		ended := make(chan error)
		go func() { ended <- (&taskWatch{output: outputTable, every: 2 * time.Second}).run(ctx, q, &out, &errs) }()
		time.AfterFunc(7*time.Second, interrupt)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if looks != 4 || strings.Count(out.String(), ", every 2s\nthere are no tasks") != 3 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%d looks, printed\n%s", looks, out.String())
		}
		if !strings.Contains(errs.String(), mysql.ErrUnavailable.Error()) {
			t.Errorf("said %q", errs.String())
		}
	})
}

func TestWatchingEndsWithOtherErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		q := stater{stats: func() (queue.Stats, error) {
			looks++
			if looks == 2 {
				return queue.Stats{}, errBoom
			}
			return queue.Stats{}, nil
		}}
		if err := (&taskWatch{output: outputJSON, every: time.Second}).run(t.Context(), q, io.Discard, io.Discard); !errors.Is(err, errBoom) || looks != 2 {
			t.Errorf("%v after %d looks", err, looks)
		}
	})
}
