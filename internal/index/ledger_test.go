package index_test

import (
	"math"
	"testing"
	"time"
)

// Only the last process that began the sweep saves, whatever others try later.
func TestAStaleSweepSavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		begin := func(fence uint64, wantState string, want bool) {
			t.Helper()
			state, begun, err := b.ledger.BeginSweep(ctx, fence)
			if err != nil || begun != want || state != wantState {
				t.Errorf("%d begins: %q, %v, %v, want %q, %v", fence, state, begun, err, wantState, want)
			}
		}
		save := func(fence uint64, state string, want bool) {
			t.Helper()
			if saved, err := b.ledger.SaveSweep(ctx, fence, state); err != nil || saved != want {
				t.Errorf("%d saves: %v, %v, want %v", fence, saved, err, want)
			}
		}
		save(9, "before it begins", false)
		begin(9, "", true)
		save(9, "half way", true)
		begin(9, "half way", true) // again, after an error
		begin(10, "half way", true)
		save(9, "stale, before the other one has saved", false)
		save(10, "further", true)
		begin(9, "", false)
		save(9, "stale", false)
		if ttl := b.client.PTTL(ctx, "activityd_{sweep}_fence").Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("the fence is kept for %v", ttl)
		}
		const above = 1<<53 + 1 // neighbours that are one number to Lua
		begin(above, "further", true)
		begin(above-1, "", false)
		save(above-1, "stale", false)
		save(above, "on", true)
		b.client.Del(ctx, "activityd_{sweep}_fence", "activityd_{sweep}_state") // Redis was emptied
		save(above, "as if nothing had happened", false)
		begin(above, "", true)
		save(above, "anew", true)
		b.client.Del(ctx, "activityd_{sweep}_fence") // no process saved for long
		begin(1, "anew", true)
		begin(math.MaxInt64, "anew", true)
		begin(math.MaxInt64-1, "", false)
	})
}
