package queue

import (
	"context"
	"encoding/json"
	"fmt"
)

// Handle returns a handler that does one task at a time, with its payload decoded into Args. An
// error of work is the outcome of its task alone, and so is a panic: see [Permanent] and [Later]. A payload that is
// no Args is permanent, too, and work is not called; fields that Args has not are ignored.
//
// Tasks of one share have one context, which ends after [PoolOptions].Limit. With [Workers].Batch 1, a share has
// one task.
func Handle[Args any](work func(ctx context.Context, t Task, args Args) error) Handler {
	return eachOf[Args](work)
}

// eachOf is a handler that decodes the payload of each task.
type eachOf[Args any] func(ctx context.Context, t Task, args Args) error

// Handle implements [Handler].
func (work eachOf[Args]) Handle(ctx context.Context, batch []Task) []Outcome {
	all := make([]Outcome, len(batch))
	for i := range batch {
		if ctx.Err() != nil {
			all[i].Err = Later(0, fmt.Errorf("not begun: %w", context.Cause(ctx)))
			continue
		}
		all[i].Err = work.do(ctx, batch[i])
	}
	return all
}

func (work eachOf[Args]) do(ctx context.Context, t Task) (err error) {
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
