package queue_test

import (
	"context"
	"errors"
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

// faulty is a queue some of whose calls fail.
type faulty struct {
	queuetest.Queue
	claims, finishes, sweeps int32 // how many calls are still to fail
}

var errAway = errors.New("the database is away")

func countDown(n *int32) error {
	if atomic.AddInt32(n, -1) >= 0 { // for several workers
		return errAway
	}
	return nil
}

func (f *faulty) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	if err := countDown(&f.claims); err != nil {
		return nil, err
	}
	return f.Queue.Claim(ctx, name, n, lease)
}

func (f *faulty) Finish(ctx context.Context, results []queue.Result) (int, error) {
	if err := countDown(&f.finishes); err != nil {
		return 0, err
	}
	return f.Queue.Finish(ctx, results)
}

func (f *faulty) Sweep(ctx context.Context) (queue.Swept, error) {
	if err := countDown(&f.sweeps); err != nil {
		return queue.Swept{}, err
	}
	return f.Queue.Sweep(ctx)
}

// A queue that fails for a while costs time and no task: results are tried to be
// recorded again, and if that is in vain, the lease runs out and the task is done
// once more.
func TestAFailingQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		faults faulty
		runs   int
		log    string
	}{
		"claims":              {faulty{claims: 5}, 1, "claim failed"},
		"sweeps":              {faulty{sweeps: 5}, 1, "sweep failed"},
		"results for a while": {faulty{finishes: 3}, 1, ""},
		"results for long":    {faulty{finishes: 5}, 2, "results of tasks not recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				p := startPool(t, each(func(context.Context, queue.Task) error {
					runs++
					return nil
				}), queue.PoolOptions{}, func(q queuetest.Queue) queuetest.Queue {
					test.faults.Queue = q
					return &test.faults
				})
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
		small := &smallClaims{}
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }),
			queue.PoolOptions{Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 256}}},
			func(q queuetest.Queue) queuetest.Queue { small.Queue = q; return small })
		for i := range member.ID(20) {
			enqueue(t, p.queue, tasks.NewUpload(1+i))
		}
		pass(5 * time.Minute)
		counts(t, p.queue, queuetest.Counts{})
		p.stop()
		if small.failed > 100 {
			t.Errorf("%d claims failed before the last task was claimed", small.failed)
		}
	})
}

// smallClaims is a queue that refuses claims of more than two tasks.
type smallClaims struct {
	queuetest.Queue

	failures int
	failed   int // claims that failed before the last task was claimed
}

func (q *smallClaims) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	if n > 2 {
		q.failures++
		return nil, context.DeadlineExceeded
	}
	list, err := q.Queue.Claim(ctx, name, n, lease)
	if len(list) > 0 {
		q.failed = q.failures
	}
	return list, err
}
