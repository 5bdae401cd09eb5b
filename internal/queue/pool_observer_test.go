package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

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

func (o *noted) Finished(name string, t string, outcome queue.Outcome, took time.Duration) {
	o.note(fmt.Sprintf("%s %s %s in %v", outcome, name, t, took), 1)
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

func TestThePoolTellsWhatBecomesOfTasks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		outcome queue.Outcome
	}{
		"done":      {nil, queue.OutcomeDone},
		"retried":   {errors.New("failed"), queue.OutcomeRetried},
		"postponed": {queue.Later(time.Hour, errors.New("away")), queue.OutcomePostponed},
		"died":      {queue.Permanent(errors.New("broken")), queue.OutcomeDied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				told := &noted{}
				p := startPool(t, each(func(_ context.Context, task queue.Task) error {
					deaf(3 * time.Second)
					if task.Attempts > 1 {
						t.Error("it came back too early")
					}
					return test.err
				}), queue.PoolOptions{Observer: told, Sweep: time.Hour, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1}}})
				pass(time.Second)
				enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
				pass(time.Minute)
				ended := string(test.outcome) + " default upload in 3s 1"
				told.expect(t, "started default upload after 0s 1", "started default upload after 3s 1", ended, ended)
			})
		})
	}
}

// The time behind an earlier task of the ordering key is time that a task waits.
func TestWaitingForTheOrderIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := &noted{}
		p := startPool(t, each(func(context.Context, queue.Task) error {
			deaf(200 * time.Millisecond)
			return nil
		}), queue.PoolOptions{Observer: told, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 2, Batch: 1}}})
		enqueue(t, p.queue, tasks.NewAddContact(1, 2))
		pass(50 * time.Millisecond)
		enqueue(t, p.queue, tasks.NewAddContact(1, 3))
		pass(time.Minute)
		ended := "done default add_contact in 200ms 1"
		told.expect(t, "started default add_contact after 0s 1", "started default add_contact after 150ms 1", ended, ended)
	})
}

func TestThePoolTellsWhatExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := &noted{}
		p := startPool(t, &doing{}, queue.PoolOptions{Observer: told, Workers: []queue.Workers{{Queue: tasks.QueueRefill, Count: 1}}})
		brief := tasks.NewUpload(1)
		brief.Life = time.Second
		enqueue(t, p.queue, brief)
		pass(10 * time.Second)
		counts(t, p.queue, queue.Counts{})
		told.expect(t, "dropped 1")
	})
}
