package tasks

import (
	"context"
	"errors"
	"time"
)

// sweep keeps sweeping until the stop.
func (s *shift) sweep() {
	ctx := s.claiming
	for ctx.Err() == nil {
		began := time.Now()
		more, err := s.sweepOnce(ctx)
		s.report(ctx, began, err, "sweep failed")
		switch {
		case err != nil:
			s.idle(ctx, 8*s.options.Sweep)
		case !more:
			s.idle(ctx, s.options.Sweep)
		}
	}
}

// sweepOnce looks which queues are paused, and sweeps. One may fail without the
// other: then what was known of the pauses goes on.
func (s *shift) sweepOnce(ctx context.Context) (more bool, err error) {
	paused, pausedErr := s.queue.Paused(ctx)
	if pausedErr == nil {
		s.bell.RingHere(s.pauses.learn(paused, s.queues)...)
	}
	swept, sweepErr := s.queue.Sweep(ctx)
	if swept.TookOver > 0 {
		s.log.WarnContext(ctx, "leases ran out: their tasks are free again, or dead after their last attempt", "count", swept.TookOver)
		leaseTakeovers.Add(float64(swept.TookOver))
	}
	tasksDropped.Add(float64(swept.Dropped))
	if swept.Due+swept.TookOver > 0 {
		s.bell.RingAllHere()
	}
	return swept.More, errors.Join(pausedErr, sweepErr)
}
