// Package retry has the pauses between attempts. A loop that tries again counts
// its failures itself, because the count often lives elsewhere (a task's attempts
// in the database) and starts at zero after each success:
//
//	for failures := 0; ; {
//		err := try(ctx)
//		if err == nil || !worthRepeating(err) {
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

// Sleep waits for d, or until ctx ends: then it returns the cause. A d of zero or
// less only looks at ctx.
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
// failed together do not come back together.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// Backoff returns the pause after so many failures in a row, the first of which is
// number 1: base, which is positive, doubled with each further failure, limit at
// most, with jitter.
func Backoff(failures int, base, limit time.Duration) time.Duration {
	for ; failures > 1 && base < limit; failures-- {
		base += min(base, limit-base)
	}
	return Jitter(min(base, limit))
}
