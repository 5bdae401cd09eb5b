package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// errTooLong is the cause of what is cancelled by [Options.Limit].
var errTooLong = errors.New("it took too long")

// work visits the members of a batch, as often as it takes, and leaves the gate.
// What is left after an error comes last, in halves.
func (r *run) work(b *batch, leave func()) error {
	parts := [][]member.ID{b.users}
	for failures := 0; ; {
		part := parts[0]
		parts = parts[1:]
		left, err := r.visit(b, part)
		leave()
		switch {
		case err == nil:
			failures = 0
		case r.starting.Err() != nil:
			return ErrStopped
		case !r.passes(err):
			return fmt.Errorf("members %s to %s: %w", part[0], part[len(part)-1], err)
		default:
			failures++
			parts = slices.AppendSeq(parts, slices.Chunk(left, (len(left)+1)/2))
			r.options.Trouble(err)
		}
		if len(parts) == 0 {
			return nil
		}
		if failures > 0 && !r.pause(failures) {
			return ErrStopped
		}
		if leave, err = r.options.Gate.Enter(r.starting); err != nil {
			return ErrStopped
		}
	}
}

// visit visits once, and counts who is done. With an error there is somebody left.
func (r *run) visit(b *batch, users []member.ID) (left []member.ID, err error) {
	ctx, cancel := context.WithTimeoutCause(r.visiting, r.options.Limit, errTooLong)
	defer cancel()
	done, left, err := r.options.Visit(ctx, users)
	if err != nil && len(left) == 0 {
		return users, r.explain(ctx, err)
	}
	b.counts.Add(done)
	return left, r.explain(ctx, err)
}

// readOnce lists the members that follow.
func (r *run) readOnce(after member.ID) ([]member.ID, error) {
	ctx, cancel := context.WithTimeoutCause(r.starting, r.options.Limit, errTooLong)
	defer cancel()
	users, err := r.options.Source.Members(ctx, after, r.options.Batch)
	return users, r.explain(ctx, err)
}

// explain says of an error that it is due to the limit.
func (r *run) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%w (more than %v): %w", errTooLong, r.options.Limit, err)
	}
	return err
}

func (r *run) passes(err error) bool {
	return errors.Is(err, errTooLong) || r.options.Passing(err)
}

// The pauses after errors double from the first to the longest.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// pause waits after the n-th failure in a row, and returns false when nothing may
// start any more.
func (r *run) pause(n int) bool {
	d := min(firstPause<<min(n-1, 10), mostPause)
	timer := time.NewTimer(d/2 + rand.N(d/2)) // those who failed together do not come back together
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.starting.Done():
		return false
	}
}
