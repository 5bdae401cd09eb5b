package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// dying stands between a pool and its queue: once the process is dead, nothing
// gets through.
type dying struct {
	queuetest.Queue
	dead atomic.Bool
}

var errKilled = errors.New("killed")

func (d *dying) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	if d.dead.Load() {
		return nil, errKilled
	}
	return d.Queue.Claim(ctx, name, n, lease)
}

func (d *dying) Extend(ctx context.Context, held []queue.Task, lease time.Duration) (int, error) {
	if d.dead.Load() {
		return 0, errKilled
	}
	return d.Queue.Extend(ctx, held, lease)
}

func (d *dying) Finish(ctx context.Context, results []queue.Result) (int, error) {
	if d.dead.Load() {
		return 0, errKilled
	}
	return d.Queue.Finish(ctx, results)
}

func (d *dying) Sweep(ctx context.Context) (queue.Swept, error) {
	if d.dead.Load() {
		return queue.Swept{}, errKilled
	}
	return d.Queue.Sweep(ctx)
}

// A task that kills its process whenever it runs, by using up the memory say,
// dies of that alone, and costs the others two attempts.
func TestATaskThatKillsItsProcessHarmsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		for i := range 50 {
			enqueue(t, q, tasks.NewUpload(id(i+1)))
		}
		var most int
		for range 30 { // processes, one after the other
			most = max(most, runUntilKilled(t, q, 25))
		}
		if most != queuetest.SharedAttempts+1 {
			t.Errorf("the others were done at attempt %d, want the one after those with the killer", most)
		}
		list, err := q.List(t.Context(), queue.Filter{}, 100)
		if err != nil || len(list) != 1 || list[0].Key != 25 || list[0].State != queue.Dead {
			t.Errorf("left are %+v, %v, want the killer, dead", list, err)
		}
	})
}

// A process is killed for another reason: its tasks come back as batches.
func TestTheTasksOfAKilledProcessComeBackAsBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lost, batch = 1000, 256
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		for i := range lost {
			enqueue(t, q, tasks.NewUpload(id(i+1)))
		}
		if list := claimFor(t, q, tasks.QueueDefault, lost, 5*time.Second); len(list) != lost {
			t.Fatalf("claimed %d", len(list))
		}
		killed := time.Now()
		var runs int
		var done time.Time
		pool := queue.NewPool(q, map[string]queue.Handler{tasks.Upload: &doing{func(_ context.Context, batch []queue.Task) []error {
			_ = sleepFor(t.Context(), 40*time.Millisecond)
			runs++
			done = time.Now()
			return make([]error, len(batch))
		}}}, queue.PoolOptions{Log: quiet(), Kinds: tasks.Kinds(), Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: batch}}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		pass(time.Minute)
		counts(t, q, queuetest.Counts{})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := done.Sub(killed); runs != (lost+batch-1)/batch || took > 6*time.Second {
			t.Errorf("done in %d batches, %v after the process was killed", runs, took)
		}
	})
}

// runUntilKilled runs a process that a subject's task kills, for an hour at most. It returns the
// last attempt at which another was done.
func runUntilKilled(t *testing.T, q queuetest.Queue, killer int) (attempt int) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	process := &dying{Queue: q}
	handler := each(func(_ context.Context, task queue.Task) error {
		if process.dead.Load() {
			return errKilled
		}
		if task.Key == uint64(killer) {
			process.dead.Store(true)
			kill()
			return errKilled
		}
		attempt = max(attempt, task.Attempts)
		return nil
	})
	pool := queue.NewPool(process, map[string]queue.Handler{tasks.Upload: handler}, queue.PoolOptions{
		Log: quiet(), Kinds: tasks.Kinds(),
		Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 1, Batch: 256}},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := pool.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
		kill()
	}
	<-ended
	return attempt
}

// A task that hangs holds up the tasks of its member, and no others.
func TestATaskThatHangsHoldsUpItsLaneAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		others := make(chan time.Duration, 10)
		start := time.Now()
		p := startPool(t, each(func(ctx context.Context, task queue.Task) error {
			if task.Key == 1 {
				return sleepFor(ctx, time.Hour)
			}
			others <- time.Since(start)
			return nil
		}), queue.PoolOptions{Kinds: tasks.Kinds(), Limit: time.Minute, Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 3, Batch: 1}}})
		enqueue(t, p.queue, tasks.NewAddContact(1, 2))
		pass(10 * time.Millisecond)
		enqueue(t, p.queue, tasks.NewAddContact(1, 3), tasks.NewAddContact(1, 4), tasks.NewAddContact(1, 5))
		pass(10 * time.Millisecond)
		enqueue(t, p.queue, tasks.NewAddContact(2, 3), tasks.NewAddContact(3, 4))
		for range 2 {
			if took := <-others; took > 2*time.Second {
				t.Errorf("a task of another member waited %v", took)
			}
		}
	})
}

// An upload that absorbed others, which never expire, does not expire either.
func TestWhatAbsorbedDoesNotExpire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		mortal := tasks.NewUpload(7)
		mortal.Life = 2 * time.Second
		enqueue(t, q, mortal)
		held := claim(t, q, 1)
		enqueue(t, q, tasks.NewUpload(7))
		if n, err := q.Absorb(t.Context(), held); err != nil || n != 1 {
			t.Fatalf("absorbed %d, %v", n, err)
		}
		finish(t, q, queue.Later(mortal.Life+time.Second, errors.New("redis is away")), held...)
		eventually(t, "it is claimed again", func() bool {
			sweep(t, q)
			return len(claim(t, q, 1)) == 1
		})
	})
}

// Tasks that expired do not hide those behind them.
func TestExpiredTasksHideNone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		for i := range 5 {
			mortal := tasks.NewUpload(id(i + 1))
			mortal.Life = time.Millisecond
			enqueue(t, q, mortal)
		}
		lives := enqueue(t, q, tasks.NewUpload(9))
		eventually(t, "the others expired", func() bool {
			list, err := q.List(t.Context(), queue.Filter{}, 10)
			return err == nil && time.Now().After(list[4].ExpiresAt.Add(5*time.Millisecond))
		})
		if list := claim(t, q, 2); len(list) != 1 || list[0].ID != lives[0] {
			t.Errorf("claimed %+v, want %d", list, lives[0])
		}
	})
}

// Who retries a dead task wants it to run, however long ago it should have.
func TestRetryEndsTheExpiry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		mortal := tasks.NewUpload(7)
		mortal.Life = 20 * time.Millisecond
		eventually(t, "it is claimed before it expires", func() bool {
			enqueue(t, q, mortal)
			list := claim(t, q, 1)
			finish(t, q, queue.Permanent(errors.New("never")), list...)
			return len(list) == 1
		})
		eventually(t, "it would have expired", func() bool {
			list, err := q.List(t.Context(), queue.Filter{}, 10)
			return err == nil && time.Now().After(list[0].ExpiresAt)
		})
		if n, err := q.Retry(t.Context(), queue.Filter{}, 10); err != nil || n != 1 {
			t.Fatalf("retried %d, %v", n, err)
		}
		sweep(t, q)
		if list := claim(t, q, 1); len(list) != 1 || list[0].Attempts != 1 {
			t.Errorf("claimed %+v", list)
		}
	})
}

// Somebody's lock on one lease does not stop the sweep of the others.
func TestALockedLeaseDoesNotStopTheSweep(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
	locked := claimFor(t, q, queue.DefaultQueue, 1, time.Millisecond)
	claimFor(t, q, queue.DefaultQueue, 1, time.Millisecond)
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "SELECT token FROM task_leases WHERE token = ? FOR UPDATE", locked[0].Lease); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is freed", func() bool { // tries again only because the lease has to run out
		swept, err := q.Sweep(t.Context())
		return err == nil && swept.TookOver == 1
	})
	counts(t, q, queuetest.Counts{Waiting: 1, Running: 1})
}
