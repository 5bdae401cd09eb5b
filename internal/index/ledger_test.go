package index_test

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
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

func TestMarksOnlyRise(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		for want := int64(1); want <= 3; want++ {
			m, err := b.ledger.RaiseGeneration(t.Context())
			if err != nil || len(m.Marks) != 1 || m.Marks[0] != want {
				t.Fatalf("marks %+v, %v, want %d", m, err, want)
			}
		}
		b.client.FlushAll(t.Context())
		if m, err := b.ledger.RaiseGeneration(t.Context()); err != nil || m.Marks[0] != 1 {
			t.Errorf("marks %+v, %v of an empty server", m, err)
		}
	})
}

// Another start is another run, and known by its name.
func TestMarksKnowTheRunOfTheServer(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	tick := func() index.Generation {
		t.Helper()
		m, err := b.ledger.RaiseGeneration(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := tick()
	if again := tick(); first.Server == "" || again.Server != first.Server {
		t.Errorf("runs %q and %q of one server", first.Server, again.Server)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = b.ledger.RaiseGeneration(t.Context()) // the connection of before is noticed to be broken
	if later := tick(); later.Server == "" || later.Server == first.Server {
		t.Errorf("run %q after a restart of %q", later.Server, first.Server)
	}
}

// Who was started after the server knows its run no less: the name lies in Redis.
func TestAnotherRunIsALossForWhoeverComes(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	lost := func(replaced bool) int64 {
		t.Helper()
		b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{}) // a new process
		m, err := b.ledger.RaiseGeneration(t.Context())
		if err := cmp.Or(err, b.client.Save(t.Context()).Err()); err != nil { // a server without data knows no run
			t.Fatal(err)
		}
		if m.Changed != replaced {
			t.Errorf("replaced: %v, want %v", m.Changed, replaced)
		}
		return m.LostAt
	}
	restart := func() {
		t.Helper()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if first, again := lost(false), lost(false); first != 0 || again != 0 {
		t.Errorf("losses %d and %d of a server that nobody knew before", first, again)
	}
	restart()
	second := lost(true)
	if again := lost(false); second == 0 || again != second {
		t.Errorf("loss %d of another run, then %d", second, again)
	}
	restart()
	if third := lost(true); third <= second {
		t.Errorf("loss %d of the third run after %d", third, second)
	}
}

func TestLossesOnlyRise(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		for _, c := range []struct{ noted, want int64 }{{1_900_000_000_000, 1_900_000_000_000}, {5, 1_900_000_000_000}, {1_900_000_000_001, 1_900_000_000_001}} {
			if err := b.ledger.NoteLoss(t.Context(), c.noted); err != nil {
				t.Fatal(err)
			}
			if m, err := b.ledger.RaiseGeneration(t.Context()); err != nil || m.LostAt != c.want {
				t.Errorf("loss %d, %v after %d, want %d", m.LostAt, err, c.noted, c.want)
			}
		}
		b.client.Set(t.Context(), "activityd_{mark}_lost", "foreign", 0)
		if err := b.ledger.NoteLoss(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		if m, err := b.ledger.RaiseGeneration(t.Context()); err != nil || m.LostAt != 7 {
			t.Errorf("loss %d, %v, want 7", m.LostAt, err)
		}
	})
}
