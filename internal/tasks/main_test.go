package tasks_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func enqueue(t *testing.T, q queue.Queue, batch ...queue.New) []uint64 {
	t.Helper()
	ids, err := q.Enqueue(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func claim(t *testing.T, q queue.Queue, n int) []queue.Task {
	t.Helper()
	return claimFor(t, q, tasks.QueueDefault, n, time.Minute)
}

func claimFor(t *testing.T, q queue.Queue, queue string, n int, lease time.Duration) []queue.Task {
	t.Helper()
	list, err := q.Claim(t.Context(), queue, n, lease)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// finish records err for all of the tasks, none of which may be lost.
func finish(t *testing.T, q queue.Queue, err error, list ...queue.Task) {
	t.Helper()
	if lost := tryFinish(t, q, err, list...); lost > 0 {
		t.Fatalf("%d leases were lost", lost)
	}
}

func tryFinish(t *testing.T, q queue.Queue, err error, list ...queue.Task) (lost int) {
	t.Helper()
	var results []queue.Result
	for _, task := range list {
		results = append(results, queue.Result{Task: task, Err: err})
	}
	lost, finishErr := q.Finish(t.Context(), results)
	if finishErr != nil {
		t.Fatal(finishErr)
	}
	return lost
}

func counts(t *testing.T, q queue.Queue, want queue.Counts) {
	t.Helper()
	got, err := q.Count(t.Context())
	if err != nil || got != want {
		t.Fatalf("counts %+v, %v, want %+v", got, err, want)
	}
}

// deaf waits, within a synctest bubble.
func deaf(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

// noted is an observer that remembers.
type noted struct {
	mu   sync.Mutex
	list []string
	sums map[string]int
}

func (o *noted) note(event string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, fmt.Sprintf("%s %d", event, n))
	if o.sums == nil {
		o.sums = map[string]int{}
	}
	o.sums[event] += n
}

// events returns what was noted, sorted.
func (o *noted) events() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(slices.Values(o.list))
}

func (o *noted) sum(event string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sums[event]
}

func (o *noted) Enqueued(t string, n, absorbed int) {
	o.note("enqueued "+string(t), n)
	o.note("absorbed "+string(t), absorbed)
}

func (o *noted) Started(queue string, t string, waited time.Duration) {
	o.note(fmt.Sprintf("started %s %s after %v", queue, t, waited), 1)
}

func (o *noted) Finished(queue string, t string, outcome queue.Outcome, took time.Duration) {
	o.note(fmt.Sprintf("%s %s %s in %v", outcome, queue, t, took), 1)
}

func (o *noted) TookOver(n int)       { o.note("took over", n) }
func (o *noted) LeasesLost(n int)     { o.note("leases lost", n) }
func (o *noted) Dropped(n int)        { o.note("dropped", n) }
func (o *noted) UploadAbsorbed(n int) { o.note("upload absorbed", n) }
func (o *noted) Conflicted(n int)     { o.note("conflicted", n) }
func (o *noted) Refilled(n int)       { o.note("refilled", n) }

func (o *noted) FannedOut(followers int, lag time.Duration) {
	o.note(fmt.Sprintf("fanned out in %v", lag), followers)
}

func (o *noted) expect(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := o.events(); !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
