package main

import (
	"context"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// system is a queue with its workers: activityd's, or one that it is compared with.
type system interface {
	// work starts workers, which tell done of each task whose effects are complete.
	// stop returns when they have ended.
	work(ctx context.Context, done *countdown) (stop func() error, err error)
	// left returns how many tasks the queue holds.
	left(ctx context.Context) (int, error)
}

// countdown waits for a number of tasks.
type countdown struct {
	open atomic.Int64
	zero chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{zero: make(chan struct{})}
	c.open.Store(int64(n))
	return c
}

func (c *countdown) done(n int) {
	if left := c.open.Add(int64(-n)); left <= 0 && left+int64(n) > 0 {
		close(c.zero)
	}
}

func (c *countdown) wait(ctx context.Context) error {
	select {
	case <-c.zero:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inParallel calls do for chunks of a list, from a number of goroutines.
func inParallel[T any](ctx context.Context, goroutines, chunk int, list []T, do func(context.Context, []T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(goroutines)
	for some := range slices.Chunk(list, chunk) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, some)
		})
	}
	return group.Wait()
}
