// Package retry has the pauses between attempts. A loop counts its failures itself,
// because the count is often kept elsewhere (a task's attempts in the database) and
// starts at zero after each success:
//
//	for failures := 0; ; {
//		err := try(ctx)
//		if err == nil || !temporary(err) {
//			return err
//		}
//		failures++
//		if err := retry.Sleep(ctx, retry.Backoff(failures, 100*time.Millisecond, 5*time.Second)); err != nil {
//			return err
//		}
//	}
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends, when it returns the cause. A d of zero or
// less only checks ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter returns a random duration between half of d and d, so that processes that
// failed at the same time do not retry at the same time.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// Backoff returns the pause after so many failures in a row: base, which is positive,
// after the first, doubled with each further one up to maxPause, with jitter.
func Backoff(failures int, base, maxPause time.Duration) time.Duration {
	for ; failures > 1 && base < maxPause; failures-- {
		base += min(base, maxPause-base)
	}
	return Jitter(min(base, maxPause))
}
