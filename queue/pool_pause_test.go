package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func setPaused(t *testing.T, q queuetest.Queue, paused bool) {
	t.Helper()
	do := q.Resume
	if paused {
		do = q.Pause
	}
	if changed, err := do(t.Context(), tasks.QueueDefault); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
}

// A paused queue stands still while further queues go on, and goes on soon after its
// end without waiting for a poll.
func TestAPausedQueueStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := asleep(tasks.DefaultWorkers()...)
		o.Sweep = time.Second
		p := startPool(t, each(func(context.Context, queue.Task) error { return nil }), o)
		pass(time.Minute)
		setPaused(t, p.queue, true)
		pass(2 * time.Second)
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewFanOut(1, 1), tasks.NewRefill(1))
		pass(time.Minute)
		counts(t, p.queue, queuetest.Counts{Waiting: 1})
		setPaused(t, p.queue, false)
		pass(time.Second)
		counts(t, p.queue, queuetest.Counts{})
	})
}
