package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// overfill fills the user's set with contacts 1 to n, scored 100·contact, as another
// program might.
func (b bench) overfill(t *testing.T, n int) {
	t.Helper()
	script := `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], 100 * i, tostring(i)) end`
	for first := 1; first <= n; first += 50_000 {
		last := min(first+49_999, n)
		if err := b.client.Eval(t.Context(), script, []string{"user_12345"}, first, last).Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
}

// A huge set of plausible members costs an update no more than any other set: it fetches at
// most Max members, and makes the set agree with MySQL.
func TestAnUpdateOfAHugeSetFetchesMax(t *testing.T) {
	t.Parallel()
	const many = 200_000
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	b.overfill(t, many)
	before := b.sent(t)
	u := b.begin(t)
	if len(u.Members) != 12 || u.Members[0].Contact != many-11 || !u.Known || u.Foreign {
		t.Fatalf("%d members, the lowest %v", len(u.Members), u.Members[:1])
	}
	if sent := b.sent(t) - before; sent > 20_000 { // INFO's own answer included
		t.Errorf("Redis sent %d bytes", sent)
	}
	if size := b.client.ZCard(t.Context(), "user_12345").Val(); size != 12 {
		t.Errorf("the set has %d members after Begin", size)
	}
	var all []member.ID
	for _, e := range u.Members {
		all = append(all, e.Contact)
	}
	if got := b.apply(t, index.Change{Update: u, Remove: all, WithRefill: true, Refill: ladder(11)}); got != index.Applied {
		t.Errorf("outcome %v", got)
	}
	b.holds(t, ladder(11))
}

// However many contacts are to be removed, each is looked up once.
func TestManyRemovalsFromALargeSet(t *testing.T) {
	t.Parallel()
	o := index.Options{Settings: settings(t, 10_000, 0, 0)}
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, o)
	b.refill(t, ladder(10_000))
	c := index.Change{Update: b.begin(t), WithRefill: true, Refill: ladder(1)}
	for i := range member.ID(30_000) {
		c.Remove = append(c.Remove, i+2)
	}
	if got := b.apply(t, c); got != index.Applied {
		t.Errorf("outcome %v", got)
	}
	b.holds(t, ladder(1))
}

// A set that is larger than Max is cut only where Max is the stored setting: a smaller Max would
// leave a set that seems to be complete.
func TestOnlyTheRightSettingsCutASet(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		smaller := bench{Index: index.New(b.client, index.Options{Settings: settings(t, 3, 0, 0)})}
		if _, err := smaller.Begin(t.Context(), []member.ID{user}); !errors.Is(err, index.ErrSettings) {
			t.Errorf("err %v, want ErrSettings", err)
		}
		b.holds(t, ladder(12))
	})
}

// A cut may take the trace of an add that the update under way has not read.
func TestACutEndsTheUpdatesUnderWay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		stale := b.begin(t)
		b.overfill(t, 40)
		next := b.begin(t)
		if next.Token == stale.Token {
			t.Error("the token outlived the cut")
		}
		b.holds(t, ladder(40)[28:])
		if got := b.apply(t, index.Change{Update: stale}); got != index.Conflict {
			t.Errorf("outcome %v, want Conflict", got)
		}
		if got := b.apply(t, index.Change{Update: next}); got != index.Applied {
			t.Errorf("outcome %v, want Applied", got)
		}
	})
}

// The sets of several users keep their places when some sets are too large.
func TestBeginKeepsTheOrderOfTheUsers(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: miniredistest.Run(t).Addr()}, index.Options{})
	b.refill(t, ladder(3))
	b.overfill(t, 30)
	users := []member.ID{1, user, 2}
	updates, err := b.Begin(t.Context(), users)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range updates {
		got = append(got, fmt.Sprint(u.Member, len(u.Members)))
	}
	if want := []string{"1 0", "12345 12", "2 0"}; !slices.Equal(got, want) {
		t.Errorf("begun %q, want %q", got, want)
	}
}

func TestBeginOfALargeSetEndsWithItsContext(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		b.overfill(t, 30)
		ctx, cancel := context.WithCancel(t.Context())
		b.AddHook(afterCalls{func([]redis.Cmder) { cancel() }})
		if _, err := b.Begin(ctx, []member.ID{user}); !errors.Is(err, context.Canceled) {
			t.Errorf("err %v, want that of the context", err)
		}
		if size := b.client.ZCard(t.Context(), "user_12345").Val(); size != 30 {
			t.Errorf("the set has %d members: it was cut after the end of the context", size)
		}
	})
}

// afterCalls does something after each call.
type afterCalls struct{ do func(cmds []redis.Cmder) }

func (h afterCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer h.do([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (h afterCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.do(cmds)
		return next(ctx, cmds)
	}
}
