package main

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
)

// side is a queue with its workers: activityd, or what it is compared with.
type side interface {
	// work starts workers, which tell done of each task whose effects are all
	// there. stop returns when they have ended.
	work(ctx context.Context, done *countdown) (stop func() error, err error)
	// left returns how many tasks the queue still holds.
	left(ctx context.Context) (int, error)
}

// contender is a side with one way into it.
type contender struct {
	name    string
	side    side
	enqueue func(ctx context.Context, pairs []contacts.Pair) error
	changes bool     // it also makes the change that the task is about
	class   string   // what others compare themselves with
	against []string // classes to be compared with
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

// inParallel calls f for each pair, from n goroutines.
func inParallel(ctx context.Context, n int, pairs []contacts.Pair, f func(context.Context, contacts.Pair) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range n {
		group.Go(func() error {
			for ctx.Err() == nil {
				at := int(next.Add(1)) - 1
				if at >= len(pairs) {
					return nil
				}
				if err := f(ctx, pairs[at]); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}
