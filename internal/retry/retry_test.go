package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := retry.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("slept %v: %v, want an hour", time.Since(start), err)
		}
		if err := retry.Sleep(t.Context(), -time.Second); err != nil || time.Since(start) != time.Hour {
			t.Errorf("less than nothing: %v after %v", err, time.Since(start))
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		for _, d := range []time.Duration{time.Hour, time.Hour, 0} {
			if err := retry.Sleep(ctx, d); !errors.Is(err, cause) || time.Since(start) != time.Hour+time.Minute {
				t.Errorf("%v: %v after %v, want the cause after a minute", d, err, time.Since(start))
			}
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	const base, limit = 100 * time.Millisecond, time.Second
	for failures, want := range map[int]time.Duration{
		0: base, 1: base, 2: 2 * base, 3: 4 * base, 4: 8 * base, 5: limit, 6: limit, math.MaxInt: limit,
	} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := retry.Backoff(failures, base, limit)
			low, high = min(low, d), max(high, d)
		}
		if low < want/2 || high > want || high-low < want/4 {
			t.Errorf("after %d failures: %v to %v, want half of %v to all of it", failures, low, high, want)
		}
	}
	if d := retry.Jitter(0); d != 0 {
		t.Errorf("of nothing: %v", d)
	}
	if d := retry.Backoff(100, time.Hour, math.MaxInt64); d < math.MaxInt64/2 {
		t.Errorf("without a limit: %v", d)
	}
}
