package queue_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// A waiting task runs as early, as urgently and lives as long as the tasks that were deduped into it would.
func TestAnAbsorbingTaskIsAsUrgentAsWhatItAbsorbs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		slow := tasks.NewUpload(7)
		slow.Priority, slow.Delay, slow.Life = queue.Idle, time.Hour, 2*time.Hour
		enqueue(t, q, slow)
		counts(t, q, queuetest.Counts{Scheduled: 1})
		fast := tasks.NewUpload(7)
		fast.Priority = queue.Urgent
		enqueue(t, q, fast)
		counts(t, q, queuetest.Counts{Waiting: 1})
		list, err := q.List(t.Context(), queue.Filter{}, 10)
		if err != nil || len(list) != 1 || list[0].Priority != queue.Urgent || !list[0].ExpiresAt.IsZero() || !list[0].RunAt.IsZero() {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestTheSameKeyEnqueuesOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		batch := []queue.New{tasks.NewUpload(1), tasks.NewUpload(2)}
		first, replayed, err := q.EnqueueOnce(t.Context(), "k", batch)
		if err != nil || replayed || len(first) != 2 {
			t.Fatalf("%v, %v, %v", first, replayed, err)
		}
		finish(t, q, nil, claim(t, q, 10)...)
		again, replayed, err := q.EnqueueOnce(t.Context(), "k", batch)
		if err != nil || !replayed || !slices.Equal(first, again) {
			t.Errorf("%v, %v, %v, want %v replayed", again, replayed, err, first)
		}
		if _, _, err := q.EnqueueOnce(t.Context(), "k", batch[:1]); !errors.Is(err, queue.ErrKeyReused) {
			t.Errorf("another batch: %v", err)
		}
		counts(t, q, queuetest.Counts{})
	})
}

// Clients whose first try timed out repeat it while it is still under way.
func TestTheSameKeyAtTheSameTime(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		var clients sync.WaitGroup
		answers := make([][]uint64, 8)
		fresh := make([]bool, 8)
		for i := range answers {
			clients.Go(func() {
				ids, replayed, err := q.EnqueueOnce(t.Context(), "k", []queue.New{tasks.NewUpload(1), tasks.NewUpload(2)})
				if err != nil {
					t.Error(err)
				}
				answers[i], fresh[i] = ids, !replayed
			})
		}
		clients.Wait()
		n := 0
		for i := range answers {
			if fresh[i] {
				n++
			}
			if !slices.Equal(answers[i], answers[0]) {
				t.Errorf("%v and %v", answers[i], answers[0])
			}
		}
		if n != 1 {
			t.Errorf("%d clients were the first", n)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		if _, err := q.Pause(t.Context(), ""); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("no name: %v", err)
		}
		for i, want := range []bool{true, false} {
			if changed, err := q.Pause(t.Context(), "refill"); err != nil || changed != want {
				t.Errorf("pause %d: %v, %v", i, changed, err)
			}
		}
		enqueue(t, q, tasks.NewRefill(1), tasks.NewUpload(1))
		if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 2 || s.Queues[0].Paused || !s.Queues[1].Paused {
			t.Errorf("stats %+v, %v", s, err)
		}
		if list := claimFor(t, q, "refill", 1, time.Minute); len(list) != 0 || len(claim(t, q, 1)) != 1 {
			t.Errorf("claimed %+v of a paused queue, or none of another", list)
		}
		for i, want := range []bool{true, false} {
			if changed, err := q.Resume(t.Context(), "refill"); err != nil || changed != want {
				t.Errorf("resume %d: %v, %v", i, changed, err)
			}
		}
		if list := claimFor(t, q, "refill", 1, time.Minute); len(list) != 1 {
			t.Errorf("claimed %+v after the pause", list)
		}
	})
}

// A dead task comes back with all its attempts, and a running task cannot be taken from its worker.
func TestRetryAndDiscard(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		var batch []queue.New
		for i := range member.ID(10) {
			batch = append(batch, tasks.NewUpload(i+1))
		}
		enqueue(t, q, batch...)
		finish(t, q, queue.Permanent(errors.New("no")), claim(t, q, 6)...)
		held := claim(t, q, 1)
		dead := queue.Filter{States: []queue.State{queue.Dead}}
		var retried []int
		for {
			n, err := q.Retry(t.Context(), dead, 4)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			retried = append(retried, n)
		}
		if !slices.Equal(retried, []int{4, 2}) {
			t.Errorf("retried %v", retried)
		}
		counts(t, q, queuetest.Counts{Waiting: 9, Running: 1})
		if n, err := q.Discard(t.Context(), queue.Filter{States: []queue.State{queue.Running}}, 100); err != nil || n != 0 {
			t.Errorf("discarded %d running tasks, %v", n, err)
		}
		if n, err := q.Discard(t.Context(), queue.Filter{}, 100); err != nil || n != 9 {
			t.Errorf("discarded %d, %v", n, err)
		}
		finish(t, q, nil, held...)
		if ids := enqueue(t, q, batch...); slices.Contains(ids, 0) { // the keys are free
			t.Errorf("ids %v", ids)
		}
		counts(t, q, queuetest.Counts{Waiting: 10})
	})
}

func TestAHeartbeatKeepsTheLease(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
		held := claimFor(t, q, queue.DefaultQueue, 1, time.Millisecond)
		other := claimFor(t, q, queue.DefaultQueue, 1, time.Millisecond)
		if lost, err := q.Extend(t.Context(), held, time.Hour); err != nil || lost != 0 {
			t.Fatalf("lost %d, %v", lost, err)
		}
		eventually(t, "the other's lease ran out", func() bool {
			swept, err := q.Sweep(t.Context())
			return err == nil && swept.TookOver == 1
		})
		if lost, err := q.Extend(t.Context(), append(held, other...), time.Hour); err != nil || lost != 1 {
			t.Errorf("lost %d, %v, want the other", lost, err)
		}
		finish(t, q, nil, held...)
	})
}

// Tasks are selected by a part of their last error.
func TestTasksAreFoundByTheirError(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewUpload(3), tasks.NewUpload(4))
		held := claim(t, q, 4)
		finish(t, q, queue.Permanent(errors.New(`dial tcp 10.0.0.7:443: Refused`)), held[0])
		finish(t, q, queue.Permanent(errors.New("100% of 5_5 are [gone]\\n")), held[1])
		finish(t, q, queue.Later(time.Hour, errors.New("dial tcp 10.0.0.8:443: refused")), held[2])
		enqueue(t, q, tasks.NewUpload(5))
		for pattern, want := range map[string]int{
			"refused": 2, "dial tcp %:443": 2, "10.0.0._:": 2, "10.0.0.7": 1, `100\% of`: 1, `5\_5 are [g`: 1, `1%\%`: 1, "nothing": 0, ".*": 0, "%": 3, `5\_0`: 0,
		} {
			list, err := q.List(t.Context(), queue.Filter{Error: pattern}, 10)
			if err != nil || len(list) != want {
				t.Errorf("%q finds %d, %v, want %d", pattern, len(list), err, want)
			}
		}
		if n, err := q.Retry(t.Context(), queue.Filter{Error: "REFUSED", States: []queue.State{queue.Dead}}, 10); err != nil || n != 1 {
			t.Errorf("retried %d, %v, want one", n, err)
		}
	})
}
