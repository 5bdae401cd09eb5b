package queue

import (
	"context"
	"encoding/json"
	"fmt"
)

// Handle returns a handler that calls work for a task at a time, with its payload decoded into Args. An error of work, or a panic, is the
// outcome of its task alone: see [Permanent] and [Later]. A payload that does not decode is a permanent error, and work is not called;
// fields that Args does not have are ignored.
//
// The tasks of a claim have the same context, which ends after [PoolOptions].Limit. With [Workers].Batch 1, a claim has a single task.
func Handle[Args any](work func(ctx context.Context, t Task, args Args) error) Handler {
	return eachOf[Args](work)
}

// eachOf is a handler that decodes the payload of each task.
type eachOf[Args any] func(ctx context.Context, t Task, args Args) error

// Handle implements [Handler].
func (work eachOf[Args]) Handle(ctx context.Context, batch []Task) []Outcome {
	all := make([]Outcome, len(batch))
	for i := range batch {
		all[i].Err = work.do(ctx, batch[i])
	}
	return all
}

func (work eachOf[Args]) do(ctx context.Context, t Task) (err error) {
	if ctx.Err() != nil {
		return Later(0, fmt.Errorf("not begun: %w", context.Cause(ctx)))
	}
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	var args Args
	if err := json.Unmarshal(t.Payload, &args); err != nil {
		return Permanent(fmt.Errorf("%w: payload: %w", ErrInvalid, err))
	}
	return work(ctx, t, args)
}
