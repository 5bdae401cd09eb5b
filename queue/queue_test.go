package queue_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func TestTasksAreClaimedInOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		ids := enqueue(t, q, tasks.NewUpload(3), tasks.NewAddContact(1, 2), tasks.NewFanOut(3, 50), tasks.NewRemoveContact(2, 1))
		got := claim(t, q, 2)
		if len(got) != 2 || got[0].ID != min(ids[0], ids[1], ids[3]) || got[0].ID > got[1].ID {
			t.Fatalf("claimed %+v of %v", got, ids)
		}
		got = append(got, claim(t, q, 10)...)
		if len(got) != 3 || len(claim(t, q, 10)) != 0 {
			t.Fatalf("claimed %d, want 3 and then none", len(got))
		}
		for _, task := range got {
			if task.Attempts != 1 || task.MaxAttempts != 25 || task.Queue != queue.DefaultQueue || task.Lease == "" {
				t.Errorf("task %+v", task)
			}
		}
		other := claimFor(t, q, tasks.QueueFanOut, 10, time.Minute)
		if len(other) != 1 || other[0].Kind != tasks.FanOut || other[0].Key != 3 {
			t.Fatalf("claimed %+v", other)
		}
		if args, err := tasks.ArgsOf[tasks.PartArgs](other[0]); err != nil || args.After != 50 {
			t.Errorf("arguments %+v, %v", args, err)
		}
		counts(t, q, queuetest.Counts{Running: 4})
	})
}

func TestATaskThatWaitsAbsorbs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		ids := enqueue(t, q, tasks.NewAddContact(1, 2), tasks.NewUpload(7), tasks.NewRemoveContact(1, 2))
		if ids[0] != ids[2] || ids[0] == ids[1] {
			t.Fatalf("ids %v: both ends of one pair are the same work", ids)
		}
		if again := enqueue(t, q, tasks.NewUpload(7), tasks.NewUpload(8)); again[0] != ids[1] || again[1] == ids[1] {
			t.Fatalf("ids %v, then %v", ids, again)
		}
		counts(t, q, queuetest.Counts{Waiting: 3})
	})
}

// A change that comes after the start must not be absorbed: the handler may
// have read before it.
func TestATaskThatRunsDoesNotAbsorb(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		ids := enqueue(t, q, tasks.NewUpload(7))
		running := claim(t, q, 1)
		again := enqueue(t, q, tasks.NewUpload(7))
		if again[0] == ids[0] {
			t.Fatal("absorbed by a running task")
		}
		finish(t, q, errors.New("failed"), running...)
		if third := enqueue(t, q, tasks.NewUpload(7)); third[0] != again[0] {
			t.Errorf("not absorbed by the task that waits: %v, %v", again, third)
		}
		counts(t, q, queuetest.Counts{Waiting: 1, Scheduled: 1})
	})
}

func TestLaterDoesNotCountTheAttempt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(7))
		for range 40 { // more often than attempts are allowed
			list := claim(t, q, 1)
			if len(list) != 1 || list[0].Attempts != 1 {
				t.Fatalf("claimed %+v", list)
			}
			finish(t, q, queue.Later(0, errors.New("redis is away")), list...)
		}
		counts(t, q, queuetest.Counts{Waiting: 1})
		finish(t, q, queue.Later(time.Hour, errors.New("redis is away")), claim(t, q, 1)...)
		sweep(t, q)
		counts(t, q, queuetest.Counts{Scheduled: 1})
	})
}

func TestALastAttemptBuries(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(7))
		list := claim(t, q, 1)
		list[0].Attempts = list[0].MaxAttempts
		finish(t, q, errors.New(strings.Repeat("ü", 5000)), list...)
		counts(t, q, queuetest.Counts{Dead: 1})
	})
}

// Tasks that were lost once come back together; tasks that were lost twice, each alone.
func TestLostTasksComeBackTogetherOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		for i := range 5 {
			enqueue(t, q, tasks.NewUpload(id(i+1)))
		}
		lose := func(n int) {
			t.Helper()
			list := claimFor(t, q, queue.DefaultQueue, 10, time.Millisecond)
			if len(list) != n {
				t.Fatalf("claimed %+v, want %d tasks", list, n)
			}
			taken := 0
			eventually(t, "the leases ran out", func() bool {
				swept, err := q.Sweep(t.Context())
				taken += swept.TookOver
				return err == nil && taken == n
			})
		}
		lose(5)
		lose(5)
		for range 2 {
			if list := claim(t, q, 10); len(list) != 1 || list[0].Attempts != 3 {
				t.Fatalf("claimed %+v, want one task alone", list)
			}
		}
		enqueue(t, q, tasks.NewUpload(6))
		lose(1)
	})
}

func TestALostLeaseFreesTheTask(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(7), tasks.NewUpload(8))
		paused := claimFor(t, q, queue.DefaultQueue, 1, 30*time.Millisecond)
		kept := claimFor(t, q, queue.DefaultQueue, 1, time.Hour)
		var taken []queue.Task
		eventually(t, "the lease ran out", func() bool {
			sweep(t, q)
			taken = claim(t, q, 2)
			return len(taken) > 0
		})
		if len(taken) != 1 || taken[0].ID != paused[0].ID || taken[0].Attempts != 2 {
			t.Fatalf("taken over %+v", taken)
		}
		for _, err := range []error{nil, errors.New("late"), queue.Permanent(errors.New("late"))} {
			if lost := tryFinish(t, q, err, paused...); lost != 1 {
				t.Errorf("the paused worker finished another's task with %v", err)
			}
		}
		counts(t, q, queuetest.Counts{Running: 2})
		finish(t, q, nil, append(taken, kept...)...)
		counts(t, q, queuetest.Counts{})
	})
}

func TestActive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewFanOut(1, 10), tasks.NewFanOut(1, 20), tasks.NewFanOut(2, 10), tasks.NewFanOut(3, 10), tasks.NewUpload(4))
		for _, task := range claimFor(t, q, tasks.QueueFanOut, 10, time.Minute) {
			switch task.Key {
			case 2:
				finish(t, q, nil, task)
			case 3:
				finish(t, q, queue.Permanent(errors.New("cannot be")), task)
			}
		}
		got, err := q.Active(t.Context(), tasks.FanOut, []uint64{1, 2, 3, 4, 5})
		if err != nil || len(got) != 1 || !got[1] {
			t.Errorf("fanning out %v, %v, want only 1", got, err)
		}
	})
}

func TestPending(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		later := tasks.NewAddContact(3, 30)
		later.Delay = time.Hour
		enqueue(t, q, tasks.NewUpload(4), tasks.NewUpload(5))
		finish(t, q, queue.Permanent(errors.New("cannot be")), claim(t, q, 1)...) // 4 is dead
		claim(t, q, 1)                                                            // 5 runs
		enqueue(t, q, tasks.NewAddContact(1, 10), tasks.NewRemoveContact(2, 10), later, tasks.NewRefill(6), tasks.NewFanOut(7, 1))
		for _, test := range []struct {
			types []string
			want  []uint64
		}{
			{[]string{tasks.AddContact, tasks.RemoveContact, tasks.Refill}, []uint64{1, 2, 3, 6}},
			{[]string{tasks.Upload, tasks.FanOut}, []uint64{5, 7}},
			{[]string{tasks.Refill}, []uint64{6}},
			{nil, nil},
		} {
			got, err := q.Pending(t.Context(), test.types, []uint64{1, 2, 3, 4, 5, 6, 7, 8})
			if found := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(found, test.want) {
				t.Errorf("%v: pending %v, %v, want %v", test.types, found, err, test.want)
			}
		}
	})
}

func TestDedupe(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(7))
		held := claim(t, q, 1)
		enqueue(t, q, tasks.NewUpload(7), tasks.NewUpload(8), tasks.NewRefill(7), tasks.NewAddContact(7, 8))
		if n, err := q.Dedupe(t.Context(), held); err != nil || n != 1 {
			t.Fatalf("deduped %d, %v, want the other upload of 7", n, err)
		}
		counts(t, q, queuetest.Counts{Running: 1, Waiting: 3})
		finish(t, q, nil, held...)
		enqueue(t, q, tasks.NewUpload(7))
		if n, err := q.Dedupe(t.Context(), held); err != nil || n != 0 {
			t.Errorf("deduped %d, %v, with a task that is not held any more", n, err)
		}
	})
}

func TestEndedContextsAreHonoured(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, enqueueErr := q.Enqueue(ctx, []queue.New{tasks.NewUpload(1)})
		_, claimErr := q.Claim(ctx, queue.DefaultQueue, 1, time.Minute)
		_, finishErr := q.Finish(ctx, []queue.Result{{Task: queue.Task{ID: 1}}})
		_, sweepErr := q.Sweep(ctx)
		for name, err := range map[string]error{"Enqueue": enqueueErr, "Claim": claimErr, "Finish": finishErr, "Sweep": sweepErr} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want Canceled", name, err)
			}
		}
		counts(t, q, queuetest.Counts{})
	})
}

func sweep(t *testing.T, q queuetest.Queue) {
	t.Helper()
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}
