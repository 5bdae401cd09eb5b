package index_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestARefillCreatesTheSetCutToMax(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		if u := b.begin(t); u.Known || u.Token == "" {
			t.Fatalf("begin on nothing: %+v", u)
		}
		b.refill(t, ladder(14))
		b.holds(t, ladder(14)[2:])
		if n := b.client.Exists(t.Context(), "guard_{user_12345}").Val(); n != 0 {
			t.Error("the guard was left behind")
		}
	})
}

func TestAnUpdateWithoutRefillCannotCreate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		c := index.Change{Update: b.begin(t), Add: entries(1, 100)}
		if got := b.apply(t, c); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		b.holds(t, nil)
	})
}

func TestARefillWithNobodyCreatesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, nil)
		if n := b.client.Exists(t.Context(), "user_12345").Val(); n != 0 {
			t.Error("there is a set without members")
		}
	})
}

// An add since Begin leaves its trace in the set, and MySQL may not have shown the contact to the
// refill: the deletion would lose it.
func TestARefillWithNobodyDeletesNoMemberItNeverSaw(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		u := b.begin(t)
		if _, err := b.Add(t.Context(), []index.Addition{{Member: u.Member, Entry: index.Entry{Contact: 77, Score: 900}}}); err != nil {
			t.Fatal(err)
		}
		if got := b.apply(t, index.Change{Update: u, WithRefill: true}); got != index.Conflict {
			t.Errorf("got %v, want Conflict", got)
		}
		b.holds(t, append(ladder(3), entries(77, 900)...))
		if got := b.apply(t, index.Change{Update: b.begin(t), WithRefill: true}); got != index.Applied {
			t.Errorf("the next got %v", got)
		}
		b.holds(t, nil)
	})
}

// The heart of the guard: a read before another update's write is void.
func TestAStaleUpdateConflicts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		stale, other := b.begin(t), b.begin(t)
		if stale.Token != other.Token {
			t.Error("concurrent updates must share the token, or they keep each other from finishing")
		}
		if got := b.apply(t, index.Change{Update: other, Remove: []member.ID{12}}); got != index.Applied {
			t.Fatalf("the first to apply got %v", got)
		}
		if got := b.apply(t, index.Change{Update: stale, Add: entries(12, 1200)}); got != index.Conflict {
			t.Errorf("the second got %v, want Conflict", got)
		}
		b.holds(t, ladder(11))
		if next := b.begin(t); next.Token == stale.Token {
			t.Error("a token was used twice")
		}
	})
}

// Even an update with nothing to write ends the updates that read earlier.
func TestAnEmptyUpdateEndsOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		stale := b.begin(t)
		if got := b.apply(t, index.Change{Update: b.begin(t)}); got != index.Applied {
			t.Fatalf("empty update: %v", got)
		}
		if got := b.apply(t, index.Change{Update: stale, Remove: []member.ID{5}}); got != index.Conflict {
			t.Errorf("stale removal: %v, want Conflict", got)
		}
		b.holds(t, ladder(12))
	})
}

// An upload that finds no set must not be lost to a refill that read before it.
func TestAnAddToAMissingSetEndsTheRefillUnderWay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		u := b.begin(t)
		b.add(t, 7, 700)
		if got := b.apply(t, index.Change{Update: u, WithRefill: true, Refill: ladder(3)}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
	})
}

// An upload dated before all of a full set is refused; but a refill that read
// before it may lower the set's lowest score below it.
func TestARefusedAddEndsTheRefillUnderWay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(10))
		u := b.begin(t)
		b.add(t, 77, 50)
		if got := b.apply(t, index.Change{Update: u, Remove: []member.ID{10}, WithRefill: true, Refill: entries(20, 20)}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		b.holds(t, ladder(10))
	})
}

// The same for an upload after the refill's read, if later uploads cut it off before the refill's
// write.
func TestATrimmingAddEndsTheRefillUnderWay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		u := b.begin(t)
		b.add(t, 20, 150) // cuts off contact 1
		b.add(t, 21, 5000)
		if got := b.apply(t, index.Change{Update: u, Remove: []member.ID{10, 11, 12}, WithRefill: true, Refill: entries(30, 30)}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		next := b.begin(t)
		b.add(t, 22, 5100)
		b.add(t, 21, 5200) // a member rises: no contact is left out
		if got := b.apply(t, index.Change{Update: next, Remove: []member.ID{77}}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		next = b.begin(t)
		b.add(t, 21, 5300)
		if got := b.apply(t, index.Change{Update: next, Remove: []member.ID{77}}); got != index.Applied {
			t.Errorf("outcome %v, want Applied: no contact was left out", got)
		}
	})
}

// An upload came after the update had read that its owner is no contact, as when the
// owner joins the site late. No other task is about it.
func TestARemovalOfWhoCameInSinceBeginConflicts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(10))
		for _, c := range []struct {
			contact member.ID
			score   uint64
			want    index.Outcome
		}{
			{20, 2000, index.Conflict}, // came in
			{20, 2100, index.Conflict}, // rose
			{20, 2100, index.Conflict}, // was there with that score
			{21, 2200, index.Applied},  // is another contact; who is removed, stays removed
		} {
			u := b.begin(t)
			b.add(t, c.contact, c.score)
			change := index.Change{Update: u, Remove: []member.ID{20}, WithRefill: true, Refill: ladder(10)}
			if got := b.apply(t, change); got != c.want {
				t.Errorf("after an add of %d at %d: %v, want %v", c.contact, c.score, got, c.want)
			}
		}
		b.holds(t, slices.Concat(ladder(10), entries(21, 2200)))
	})
}

// The traces of uploads go with their set.
func TestASetThatWentAwayConflicts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		u := b.begin(t)
		b.add(t, 9, 900)
		b.client.Del(t.Context(), "user_12345") // as an expiry or an eviction does
		if got := b.apply(t, index.Change{Update: u, WithRefill: true, Refill: ladder(3)}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		b.refill(t, ladder(3))
		b.holds(t, ladder(3))
	})
}

func TestAnUploadBetweenReadAndRefillStays(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		u := b.begin(t)
		b.add(t, 2, 5000)
		b.add(t, 9, 900)
		if got := b.apply(t, index.Change{Update: u, WithRefill: true, Refill: ladder(4)}); got != index.Applied {
			t.Fatalf("outcome %v", got)
		}
		b.holds(t, entries(1, 100, 3, 300, 4, 400, 9, 900, 2, 5000))
	})
}

func TestARemovalThatLeavesNineRefillsInTheSameStep(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(10))
		gone := []member.ID{10}
		if got := b.apply(t, index.Change{Update: b.begin(t), Remove: gone}); got != index.Conflict {
			t.Fatalf("removal below min without refill: %v, want Conflict", got)
		}
		b.holds(t, ladder(10))
		older := entries(21, 21, 22, 22, 23, 23)
		refill := slices.Concat(older, ladder(9))
		if got := b.apply(t, index.Change{Update: b.begin(t), Remove: gone, WithRefill: true, Refill: refill}); got != index.Applied {
			t.Fatalf("removal with refill: %v", got)
		}
		b.holds(t, refill)
	})
}

func TestARemovalNamedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(11))
		if got := b.apply(t, index.Change{Update: b.begin(t), Remove: []member.ID{11, 11}}); got != index.Applied {
			t.Errorf("a removal that leaves 10: %v, want Applied", got)
		}
		b.holds(t, ladder(10))
	})
}

// Apply judges by the members of the set at Apply, not at Begin.
func TestARemovalCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(11))
		u := b.begin(t)
		b.client.ZRem(t.Context(), "user_12345", "1") // as an operator might
		if got := b.apply(t, index.Change{Update: u, Remove: []member.ID{2}}); got != index.Conflict {
			t.Errorf("a removal that leaves 9: %v, want Conflict", got)
		}
		if got := b.apply(t, index.Change{Update: u, Remove: []member.ID{77}}); got != index.Applied {
			t.Errorf("a removal of no contact: %v, want Applied", got)
		}
	})
}

func TestAnExpiredGuardConflicts(t *testing.T) {
	t.Parallel()
	server := miniredistest.Run(t)
	b := newBench(t, &redis.Options{Addr: server.Addr()}, index.Options{GuardLife: time.Second})
	u := b.begin(t)
	server.FastForward(2 * time.Second)
	if got := b.apply(t, index.Change{Update: u, WithRefill: true, Refill: ladder(3)}); got != index.Conflict {
		t.Errorf("outcome %v, want Conflict", got)
	}
	b.holds(t, nil)
}

func TestAFlushedRedisConflicts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		u := b.begin(t)
		b.client.FlushAll(t.Context())
		if got := b.apply(t, index.Change{Update: u, Remove: []member.ID{1}}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		b.holds(t, nil)
	})
}

// A restarted Redis has lost the scripts, without any effect.
func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	b.refill(t, ladder(3))
	if err := b.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.add(t, 4, 400)
	b.holds(t, ladder(4))
}

func TestUpdatesMendWhatWasNeverWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		b.refill(t, ladder(3))
		b.client.ZAdd(ctx, "user_12345", redis.Z{Member: "bob", Score: 4}, redis.Z{Member: "007", Score: 5}, redis.Z{Member: "8", Score: -1})
		if u := b.begin(t); !u.Foreign {
			t.Error("what was never written was not noticed")
		}
		b.refill(t, ladder(3))
		b.holds(t, ladder(3))
		b.client.Set(ctx, "user_12345", "a string", 0)
		if u := b.begin(t); u.Known {
			t.Error("a string was taken for a set")
		}
		b.refill(t, ladder(2))
		b.holds(t, ladder(2))
	})
}

// An update removes a contact whose score activityd never wrote, or corrects the score.
func TestUpdatesMendScoresThatWereNeverWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		for _, score := range []float64{200.5, -5, 1e300} {
			b.refill(t, ladder(3))
			b.client.ZAdd(t.Context(), "user_12345", redis.Z{Member: "2", Score: score})
			u := b.begin(t)
			if !u.Foreign {
				t.Errorf("the score %g was not noticed", score)
			}
			c := index.Change{Update: u, Remove: []member.ID{2}, WithRefill: true, Refill: entries(1, 100, 3, 300)}
			if got := b.apply(t, c); got != index.Applied {
				t.Errorf("the removal of a member with score %g: %v", score, got)
			}
			b.holds(t, entries(1, 100, 3, 300))
		}
	})
}

func TestSetsExpireOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	server := miniredistest.Run(t)
	forever := newBench(t, &redis.Options{Addr: server.Addr()}, index.Options{})
	forever.refill(t, ladder(3))
	if ttl := server.TTL("user_12345"); ttl != 0 {
		t.Errorf("the set expires in %v", ttl)
	}
	idle := newBench(t, &redis.Options{Addr: server.Addr()}, index.Options{SetLife: time.Hour})
	idle.refill(t, ladder(3))
	server.FastForward(50 * time.Minute)
	if _, err := idle.Candidates(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	server.FastForward(50 * time.Minute) // since the read
	idle.holds(t, ladder(3))
	server.FastForward(11 * time.Minute)
	idle.holds(t, nil)
}

// A refill of thousands does not fit Lua's stack at once.
func TestARefillOfThousands(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b = bench{Index: index.New(b.client, index.Options{Settings: settings(t, 5000, 20, 0)}), client: b.client}
		if _, err := b.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.refill(t, ladder(6100))
		b.holds(t, ladder(6100)[100:])
	})
}
