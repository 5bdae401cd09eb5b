package queue_test

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

func TestLagIsThatOfTheOldestTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{}, time.Now)
		lag := queue.NewLag(q.Due)
		if due := lag.Due(); due != nil {
			t.Errorf("before it looked: %v", due)
		}
		go func() { _ = lag.Run(t.Context()) }()
		synctest.Wait()
		if due := lag.Due(); due == nil || due[queue.DefaultQueue] != 0 {
			t.Errorf("of an empty queue: %v", due)
		}
		enqueue(t, q, tasks.NewUpload(1))
		pass(12 * time.Second)
		if due := lag.Due(); due[queue.DefaultQueue] < 10*time.Second || due[tasks.QueueFanOut] != 0 {
			t.Errorf("after 12 s: %v", due)
		}
	})
}

// A database that fails, or only hangs, leaves what was seen for some seconds, and then
// nothing: no answer says that it is up to date because the queue could not be asked.
func TestLagIsForgotten(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("away") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				want := map[string]time.Duration{"default": time.Minute}
				var down atomic.Bool
				lag := queue.NewLag(func(ctx context.Context) (map[string]time.Duration, error) {
					if down.Load() {
						return nil, away(ctx)
					}
					return want, nil
				})
				go func() { _ = lag.Run(t.Context()) }()
				synctest.Wait()
				down.Store(true)
				pass(5 * time.Second)
				if due := lag.Due(); !maps.Equal(due, want) {
					t.Errorf("after 5 s: %v", due)
				}
				pass(6 * time.Second)
				if due := lag.Due(); due != nil {
					t.Errorf("after 11 s: %v", due)
				}
				down.Store(false)
				pass(3 * time.Second)
				if due := lag.Due(); !maps.Equal(due, want) {
					t.Errorf("when it is back: %v", due)
				}
			})
		})
	}
}
