package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// sweep keeps sweeping until the stop.
func (r *run) sweep() {
	ctx := r.claiming
	for ctx.Err() == nil {
		began := time.Now()
		more, err := r.sweepOnce(ctx)
		r.report(ctx, began, err, "sweep failed")
		switch {
		case err != nil:
			_ = retry.Sleep(ctx, retry.Jitter(8*r.options.Sweep))
		case !more:
			_ = retry.Sleep(ctx, retry.Jitter(r.options.Sweep))
		}
	}
}

// sweepOnce looks which queues are paused, and sweeps. One may fail without the
// other: then what was known of the pauses goes on.
func (r *run) sweepOnce(ctx context.Context) (more bool, err error) {
	paused, pausedErr := r.queue.Paused(ctx)
	if pausedErr == nil {
		for _, f := range r.fetchers {
			if isPaused := slices.Contains(paused, f.Queue); f.paused.Swap(isPaused) && !isPaused {
				r.notifier.NotifyLocal(f.Queue)
			}
		}
	}
	swept, sweepErr := r.queue.Sweep(ctx)
	if swept.TookOver > 0 {
		r.log.WarnContext(ctx, "leases ran out", "count", swept.TookOver,
			"then", "their tasks are free again, or dead after their last attempt")
		r.metrics.takeovers.Add(float64(swept.TookOver))
	}
	if swept.Due+swept.TookOver > 0 {
		r.notifier.NotifyAllLocal()
	}
	return swept.More, errors.Join(pausedErr, sweepErr)
}
