package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/plural"
)

// errLeaseLost is the cause of what is cancelled because another worker may have
// it by now.
var errLeaseLost = errors.New("the lease was lost")

// beats is how often a lease is extended in its time.
const beats = 4

// beat is the heartbeat of a batch: it extends the leases until ctx ends. It
// loses the batch, with a cause, when a lease is another's; and when the leases
// could not be extended as long as they last, because then they may be.
func (s *shift) beat(ctx context.Context, b *batch, lose context.CancelCauseFunc) {
	tick := time.NewTicker(max(s.options.Lease/beats, time.Millisecond))
	defer tick.Stop()
	until := b.claimed.Add(s.options.Lease)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		next, err := s.extend(ctx, b, until)
		if err != nil && ctx.Err() == nil {
			if !errors.Is(err, mysql.ErrUnavailable) { // else the log has the outage
				s.log.WarnContext(ctx, "the leases of running tasks were lost, their work is cancelled", "error", err)
			}
			lose(err)
			return
		}
		until = next
	}
}

// extend extends the leases of a batch that last until then. It returns until
// when they last now, or an error that wraps errLeaseLost. Whatever else fails is
// tried again by the next beat.
func (s *shift) extend(ctx context.Context, b *batch, until time.Time) (time.Time, error) {
	held := b.holding()
	if len(held) == 0 {
		return until, nil
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	at := time.Now()
	lost, err := s.queue.Extend(bounded, held, s.options.Lease)
	switch {
	case err == nil && lost > 0 && len(b.holding()) == len(held): // else some were finished meanwhile
		return until, fmt.Errorf("%w: %s another worker's by now", errLeaseLost, plural.Of(lost, "task is", "tasks are"))
	case err == nil:
		return at.Add(s.options.Lease), nil
	case !time.Now().Before(until):
		return until, fmt.Errorf("%w: it could not be extended: %w", errLeaseLost, err)
	}
	return until, nil
}
