package queue_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// threeQueues have two workers each, of whom one may help elsewhere. What they
// claim is so little that each task is a batch.
func threeQueues() []queue.Workers {
	return []queue.Workers{
		{Queue: queue.DefaultQueue, Count: 2, Batch: 1},
		{Queue: tasks.QueueFanOut, Count: 2, Batch: 1},
		{Queue: "nightly", Count: 2, Batch: 1},
	}
}

// manyParts are parts of large fan-outs.
func manyParts(n int) (batch []queue.New) {
	for i := range n {
		batch = append(batch, tasks.NewFanOut(id(i+1), 1))
	}
	return batch
}

// While thousands of parts of fan-outs wait, each of the other queues has a
// worker that does not care.
func TestAFanOutStarvesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy, most atomic.Int32
		begun := make(chan time.Time, 2)
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			if task.Kind != tasks.FanOut {
				begun <- time.Now()
				return nil
			}
			most.Store(max(most.Load(), busy.Add(1)))
			deaf(10 * time.Second)
			busy.Add(-1)
			return nil
		}), queue.PoolOptions{Workers: threeQueues(), Poll: time.Hour, Sweep: time.Hour})
		pass(time.Second)
		enqueue(t, p.queue, manyParts(1000)...)
		pass(time.Minute + 5*time.Second)
		for _, queue := range []string{queue.DefaultQueue, "nightly"} {
			start := time.Now()
			n := tasks.NewUpload(1)
			n.Queue = queue
			enqueue(t, p.queue, n)
			if took := (<-begun).Sub(start); took > 0 {
				t.Errorf("%s: begun after %v", queue, took)
			}
		}
		if most.Load() != 4 {
			t.Errorf("at most %d worked on the fan-outs, want its own two and one of each other queue", most.Load())
		}
	})
}

// A helper goes home as soon as there is something to do.
func TestHomeComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan time.Time, 2)
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			if task.Kind != tasks.FanOut {
				begun <- time.Now()
			}
			deaf(time.Second)
			return nil
		}), queue.PoolOptions{Workers: []queue.Workers{
			{Queue: queue.DefaultQueue, Count: 2, Batch: 1}, {Queue: tasks.QueueFanOut, Count: 1, Batch: 1},
		}, Poll: time.Hour, Sweep: time.Hour})
		enqueue(t, p.queue, manyParts(100)...)
		pass(10*time.Second + time.Millisecond)
		start := time.Now()
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
		if first := (<-begun).Sub(start); first > 0 {
			t.Errorf("the keeper began after %v", first)
		}
		if second := (<-begun).Sub(start); second > time.Second {
			t.Errorf("the helper began after %v", second)
		}
	})
}

// A queue without workers is left to other processes.
func TestQueuesWithoutWorkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }), queue.PoolOptions{Workers: []queue.Workers{
			{Queue: queue.DefaultQueue, Count: 3, Batch: 1}, {Queue: tasks.QueueFanOut, Count: 0, Batch: 1},
		}})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1))
		pass(time.Minute)
		counts(t, p.queue, queue.Counts{Waiting: 1})
	})
}

func TestQueuesOfAPool(t *testing.T) {
	t.Parallel()
	p := queue.NewPool(nil, nil, tasks.Kinds(), nil, nil, queue.PoolOptions{Workers: append(threeQueues(), threeQueues()[0], queue.Workers{Queue: "none"})})
	got := p.Queues()
	if want := []string{queue.DefaultQueue, tasks.QueueFanOut, "nightly"}; !slices.Equal(got, want) {
		t.Errorf("queues %q, want %q", got, want)
	}
}
