package queue_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// Running tasks come to their end and are recorded when the pool stops; waiting tasks stay.
func TestAStoppedPoolFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(context.Context, queue.Task) error {
			time.Sleep(3 * time.Second) //nolint:forbidigo // the time of the bubble
			return nil
		}), queue.PoolOptions{Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1}}})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
		pass(time.Second)
		counts(t, p.queue, queuetest.Counts{Waiting: 1, Running: 1})
		if took := p.stop(); took != 2*time.Second {
			t.Errorf("the stop took %v, want the 2 s that were left", took)
		}
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
	})
}

// A task that does not end within the grace period is cancelled and handed
// back at once, and the attempt is not counted.
func TestAStoppedPoolHandsBackWhatItCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(ctx context.Context, _ queue.Task) error {
			<-ctx.Done()
			return ctx.Err()
		}), queue.PoolOptions{Grace: 5 * time.Second, Lease: time.Hour})
		enqueue(t, p.queue, tasks.NewUpload(1))
		pass(time.Second)
		if took := p.stop(); took != 5*time.Second {
			t.Errorf("the stop took %v, want the grace of 5 s", took)
		}
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
		if again := claim(t, p.queue, 1); again[0].Attempts != 1 {
			t.Errorf("attempt %d, want 1 again", again[0].Attempts)
		}
	})
}

// A handler that does not hear the end of the grace period is left behind, and
// the lease of its task runs out.
func TestADeafHandlerDoesNotKeepThePoolFromStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(context.Context, queue.Task) error {
			deaf(time.Hour)
			return nil
		}), queue.PoolOptions{Grace: 5 * time.Second, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 1}}})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
		pass(time.Second)
		if took := p.stop(); took != 6*time.Second {
			t.Errorf("the stop took %v, want the grace of 5 s and a second", took)
		}
		counts(t, p.queue, queuetest.Counts{Waiting: 1, Running: 1})
		if log := p.log.String(); !strings.Contains(log, "handler does not end") {
			t.Errorf("log %s", log)
		}
		pass(2 * time.Hour)
	})
}

func TestAnIdlePoolStopsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, &doing{}, queue.PoolOptions{Workers: tasks.DefaultWorkers(), Poll: time.Hour, Sweep: time.Hour})
		pass(time.Minute)
		if took := p.stop() + p.stop(); took > 0 {
			t.Errorf("two stops took %v", took)
		}
	})
}

// A queue that fails for a while costs time and no task: results are tried to be
// recorded again, and if that is in vain, the lease runs out and the task is done
// once more.
func TestAFailingQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call  string
		fails int32
		runs  int
		log   string
	}{
		"claims":              {"claim", 5, 1, "claim failed"},
		"sweeps":              {"sweep", 5, 1, "sweep failed"},
		"results for a while": {"finish", 3, 1, ""},
		"results for long":    {"finish", 5, 2, "results of tasks not recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var fails atomic.Int32
				fails.Store(test.fails)
				runs := 0
				p := startPool(t, each(func(context.Context, queue.Task) error {
					runs++
					return nil
				}), queue.PoolOptions{}, failing(test.call, &fails))
				enqueue(t, p.queue, tasks.NewUpload(1))
				pass(5 * time.Minute)
				counts(t, p.queue, queuetest.Counts{})
				if runs != test.runs {
					t.Errorf("handled %d times, want %d", runs, test.runs)
				}
				if log := p.log.String(); !strings.Contains(log, test.log) || (test.log == "") != (log == "") {
					t.Errorf("log %q, want %q", log, test.log)
				}
			})
		})
	}
}

// A claim that fails because its tasks are too many for the time it has is followed
// by a claim for half as many, and so on, until some are done.
func TestAClaimThatIsTooLargeIsHalved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures, failed := 0, 0 // all, and before the last task was claimed
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }),
			queue.PoolOptions{Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 256}}},
			func(q queuetest.Queue) queuetest.Queue {
				return &hooked{q, func(_ context.Context, call string, n int) error {
					if call == "claim" && n > 2 {
						failures++
						return context.DeadlineExceeded
					}
					return nil
				}, func(_ string, list []queue.Task) {
					if len(list) > 0 {
						failed = failures
					}
				}}
			})
		for i := range member.ID(20) {
			enqueue(t, p.queue, tasks.NewUpload(1+i))
		}
		pass(5 * time.Minute)
		counts(t, p.queue, queuetest.Counts{})
		p.stop()
		if failed > 100 {
			t.Errorf("%d claims failed before the last task was claimed", failed)
		}
	})
}
