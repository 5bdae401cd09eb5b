package index_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestCandidatesComeNewestFirst(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		got, err := b.Candidates(t.Context(), user)
		want := ladder(12)
		slices.Reverse(want)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

func TestCandidatesOfAMissingSet(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		if _, err := b.Candidates(t.Context(), user); !errors.Is(err, index.ErrMissing) {
			t.Fatalf("err %v, want ErrMissing", err)
		}
	})
}

func TestCandidatesRefuseWhatWasNeverWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		for _, spoil := range []func(ctx context.Context){
			func(ctx context.Context) { b.client.Set(ctx, "user_12345", "x", 0) },
			func(ctx context.Context) { b.client.ZAdd(ctx, "user_12345", redis.Z{Member: "bob", Score: 1}) },
			func(ctx context.Context) { b.client.ZAdd(ctx, "user_12345", redis.Z{Member: "7", Score: -5}) },
			func(ctx context.Context) { b.client.ZAdd(ctx, "user_12345", redis.Z{Member: "7", Score: 1e300}) },
		} {
			b.client.FlushAll(t.Context())
			spoil(t.Context())
			if _, err := b.Candidates(t.Context(), user); !errors.Is(err, index.ErrMalformed) {
				t.Errorf("err %v, want ErrMalformed", err)
			}
		}
	})
}

func TestOtherSettingsAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		b.refill(t, ladder(3))
		other := bench{Index: index.New(b.client, index.Options{Settings: settings(t, 20, 20, 0)})}
		_, readErr := other.Candidates(ctx, user)
		_, beginErr := other.Begin(ctx, []member.ID{user})
		_, addErr := other.Add(ctx, []index.Addition{{Member: user, Entry: index.Entry{Contact: 9, Score: 900}}})
		for _, err := range []error{readErr, beginErr, addErr, other.Check(ctx)} {
			if !errors.Is(err, index.ErrSettings) {
				t.Fatalf("err %v, want ErrSettings", err)
			}
			for _, part := range []string{"need=10 max=12 min=10", "need=20 max=24 min=20", "activityd reset"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		}
		b.holds(t, ladder(3))
		if sets, err := other.Reset(ctx); err != nil || sets != 1 {
			t.Fatalf("reset: %d sets, %v", sets, err)
		}
		if err := other.Check(ctx); err != nil {
			t.Errorf("after the reset: %v", err)
		}
	})
}

// Two databases on one Redis: the second is refused, and after a reset by it, the first, also
// where that runs on.
func TestSetsOfAnotherDatabaseAreRefused(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	known := ""
	of := func(id func() string) index.Options {
		return index.Options{Database: id, Now: func() time.Time { return now }}
	}
	b := newBench(t, &redis.Options{Addr: miniredis.RunT(t).Addr()}, of(func() string { return known }))
	ask := func(b bench) []error {
		_, readErr := b.Candidates(t.Context(), user)
		_, beginErr := b.Begin(t.Context(), []member.ID{user})
		_, addErr := b.Add(t.Context(), []index.Addition{{Member: user, Entry: index.Entry{Contact: 9, Score: 900}}})
		return []error{readErr, beginErr, addErr, b.Check(t.Context())}
	}
	for _, err := range ask(b) {
		if !errors.Is(err, index.ErrUnavailable) && !errors.Is(err, index.ErrMissing) {
			t.Errorf("the database is not known: %v", err)
		}
	}
	for _, pattern := range []string{"user_*", "activityd_*"} {
		if keys := b.client.Keys(t.Context(), pattern).Val(); len(keys) > 0 {
			t.Errorf("the database is not known, and there are %q", keys)
		}
	}
	known = "a1"
	b.refill(t, ladder(3))
	o := of(func() string { return "b2" })
	o.Settings = b.Settings()
	other := bench{Index: index.New(b.client, o), client: b.client}
	refused := func(b bench) {
		t.Helper()
		for _, err := range ask(b) {
			if !errors.Is(err, index.ErrSettings) {
				t.Fatalf("err %v, want ErrSettings", err)
			}
			for _, part := range []string{"another database", "database=a1", "database=b2", "redis://host:6379/1", "activityd reset --yes"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		}
	}
	refused(other)
	b.holds(t, ladder(3))
	if _, err := other.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.refill(t, ladder(2))
	now = now.Add(6 * time.Second)
	refused(b)
	other.holds(t, ladder(2))
}

// A process that runs on must notice that others have begun again with other
// settings, at the latest when its trust in the last look ends.
func TestChangedSettingsAreNoticed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	b := newBench(t, &redis.Options{Addr: miniredis.RunT(t).Addr()}, index.Options{Now: func() time.Time { return now }})
	b.refill(t, ladder(3))
	if _, err := b.Candidates(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	b.refill(t, ladder(3)) // found the set
	b.client.Set(t.Context(), "activityd_settings", "need=20 max=24 min=20", 0)
	now = now.Add(6 * time.Second)
	if _, err := b.Begin(t.Context(), []member.ID{user}); !errors.Is(err, index.ErrSettings) {
		t.Errorf("begin: %v, want ErrSettings", err)
	}
	if _, err := b.Candidates(t.Context(), user); !errors.Is(err, index.ErrSettings) {
		t.Errorf("candidates: %v, want ErrSettings", err)
	}
}

// commands counts the commands that a client sends.
type commands struct{ n int }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n++
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n += len(cmds)
		return next(ctx, cmds)
	}
}

// An update of a set that is there is one command to begin and one to apply. One that
// may make a set compares the settings, whatever is trusted.
func TestCommandsOfAnUpdate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3)) // the scripts are known after it
		b.refill(t, ladder(3))
		c := &commands{}
		b.client.AddHook(c)
		counted := func(what string, want int, do func()) {
			t.Helper()
			c.n = 0
			do()
			if c.n != want {
				t.Errorf("%s: %d commands, want %d", what, c.n, want)
			}
		}
		counted("begin", 1, func() { b.begin(t) })
		counted("apply", 1, func() { b.apply(t, index.Change{Update: index.Update{Member: user}}) })
		counted("begin for two", 2, func() { _, _ = b.Begin(t.Context(), []member.ID{user, user}) })
		counted("begin of a missing set", 3, func() { _, _ = b.Begin(t.Context(), []member.ID{77}) })
		counted("begin after it", 1, func() { b.begin(t) })
	})
}

// Trust in the stored settings ends early where there is a sign that they changed.
func TestTrustEndsEarly(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]func(ctx context.Context, b bench){
		"a set that is missing": func(ctx context.Context, b bench) { b.client.Del(ctx, "user_12345") },
		"a set that is too large": func(ctx context.Context, b bench) {
			b.client.Eval(ctx, "for i = 1, 13 do redis.call('ZADD', KEYS[1], i, i) end", []string{"user_12345"})
		},
		"a probe": func(ctx context.Context, b bench) { _ = b.Probe(ctx) },
		"a check": func(ctx context.Context, b bench) { _ = b.Check(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b bench) {
				ctx := t.Context()
				b.refill(t, ladder(3))
				b.refill(t, ladder(3)) // found the set
				b.client.Set(ctx, "activityd_settings", "need=20 max=24 min=20", 0)
				sign(ctx, b)
				size := b.client.ZCard(ctx, "user_12345").Val()
				if _, err := b.Begin(ctx, []member.ID{user}); !errors.Is(err, index.ErrSettings) {
					t.Errorf("begin: %v, want ErrSettings", err)
				}
				if left := b.client.ZCard(ctx, "user_12345").Val(); left != size {
					t.Errorf("%d of %d members are left", left, size)
				}
			})
		})
	}
}

// After a wiped Redis the settings must be there before the first set.
func TestSettingsAreStoredAgainAfterAWipe(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		b.client.FlushAll(t.Context())
		b.refill(t, ladder(3))
		if got := b.client.Get(t.Context(), "activityd_settings").Val(); got != "need=10 max=12 min=10" {
			t.Errorf("stored settings %q", got)
		}
	})
}

func TestResetTouchesOnlySets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		b.refill(t, ladder(3))
		b.client.Set(ctx, "somebody_else", "x", 0)
		if sets, err := b.Reset(ctx); err != nil || sets != 1 {
			t.Fatalf("reset: %d, %v", sets, err)
		}
		if keys := b.client.Keys(ctx, "*").Val(); !slices.Equal(keys, []string{"somebody_else"}) {
			t.Errorf("left: %v", keys)
		}
	})
}

func TestARedisThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	b.refill(t, ladder(3))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.allFail(t, t.Context(), index.ErrUnavailable)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.refill(t, ladder(3))
	b.holds(t, ladder(3))
}

func TestARedisThatHangsIsUnavailable(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{}).refill(t, ladder(3))
	now := time.Now()
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix", ReadTimeout: 50 * time.Millisecond}, index.Options{
		Now: func() time.Time { return now },
	})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	b.allFail(t, short, context.DeadlineExceeded)
	b.allFail(t, t.Context(), index.ErrUnavailable)
	if _, err := b.Candidates(t.Context(), user); !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("%v of a server that is known not to answer", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}

func TestRepliesOfATroubledRedisAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory", "OOM command not allowed", "READONLY You can't write against a read only replica.",
		"MISCONF Errors writing to disk", "CLUSTERDOWN The cluster is down", "ERR max number of clients reached",
		"NOREPLICAS Not enough good replicas to write.", "MASTERDOWN Link with MASTER is down", "TRYAGAIN Multiple keys request during rehashing of slot",
		"BUSY Redis is busy running a script.", "UNKILLABLE Sorry the script already executed write commands", "UNBLOCKED force unblock from blocking operation",
		"EXECABORT Transaction discarded because of previous errors.", "NOAUTH Authentication required.", "NOPERM No permissions to access a key",
		"WRONGPASS invalid username-password pair or user is disabled.", "ERR AUTH <password> called without any password configured for the default user.",
		"ERR The user executing the script can't access at least one of the keys", "ERR ACL failure in script: No permissions to access a key",
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: -OOM command not allowed when used memory > 'maxmemory'.",
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: The user executing the script can't run this command or subcommand",
		"ERR unknown command 'EVALSHA'", "DENIED Redis is running in protected mode", "ERR Protocol error: unauthenticated multibulk length",
	} {
		server := miniredis.RunT(t)
		b := newBench(t, &redis.Options{Addr: server.Addr()}, index.Options{})
		server.SetError(reply)
		b.allFail(t, t.Context(), index.ErrUnavailable)
	}
}

// allFail calls every method and expects the error target of each.
func (b bench) allFail(t *testing.T, ctx context.Context, target error) {
	t.Helper()
	_, candidates := b.Candidates(ctx, user)
	_, begin := b.Begin(ctx, []member.ID{user})
	_, apply := b.Apply(ctx, []index.Change{{Update: index.Update{Member: user, Token: "t"}}})
	_, add := b.Add(ctx, []index.Addition{{Member: user, Entry: index.Entry{Contact: 1, Score: 1}}})
	_, reset := b.Reset(ctx)
	for name, err := range map[string]error{"Candidates": candidates, "Begin": begin, "Apply": apply, "Add": add, "Reset": reset, "Check": b.Check(ctx)} {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, want %v", name, err, target)
		}
	}
}

func TestNewSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		need, headroom, min int
		want                index.Settings
	}{
		{10, 20, 0, index.Settings{Need: 10, Max: 12, Min: 10}},
		{10, 0, 0, index.Settings{Need: 10, Max: 10, Min: 10}},
		{1, 20, 0, index.Settings{Need: 1, Max: 2, Min: 1}}, // rounded up
		{10, 20, 12, index.Settings{Need: 10, Max: 12, Min: 12}},
		{10, 20, 1, index.Settings{Need: 10, Max: 12, Min: 1}},
	} {
		if got, err := index.NewSettings(c.need, c.headroom, c.min); err != nil || got != c.want {
			t.Errorf("NewSettings(%d, %d, %d) = %v, %v, want %v", c.need, c.headroom, c.min, got, err, c.want)
		}
	}
	for _, c := range [][3]int{{0, 20, 0}, {-1, 20, 0}, {10, -1, 0}, {10, 20, 13}, {10, 20, -1}, {1 << 40, 0, 0}, {10, 1 << 40, 0}} {
		if got, err := index.NewSettings(c[0], c[1], c[2]); err == nil {
			t.Errorf("NewSettings(%v) = %v, want an error", c, got)
		}
	}
}

// What another program wrote in the place of our texts is neither fetched nor repeated
// as a whole.
func TestGiantTextsAreCutOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	giant := strings.Repeat("€", 1<<20)
	for _, key := range []string{"activityd_settings", "activityd_materialize", "activityd_epoch", "activityd_server", "activityd_lost", "activityd_mark", "activityd_{sweep}_state", "activityd_{sweep}_fence"} {
		if err := b.client.Set(ctx, key, giant, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	sent := b.sent(t)
	_, readErr := b.Candidates(ctx, user)
	_, beginErr := b.Begin(ctx, []member.ID{user})
	_, lookErr := b.Look(ctx, []member.ID{user})
	for name, err := range map[string]error{"candidates": readErr, "begin": beginErr, "look": lookErr, "check": b.Check(ctx), "probe": b.Probe(ctx)} {
		if !errors.Is(err, index.ErrSettings) || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "€€…") {
			t.Errorf("%s: %.2000v", name, err)
		}
	}
	kept, keptErr := b.ledger.Materialize(ctx)
	_, lossErr := b.Generation(ctx, index.Generation{})
	state, _, sweepErr := b.ledger.BeginSweep(ctx, 1)
	if err := errors.Join(keptErr, lossErr, sweepErr); err != nil {
		t.Error(err)
	}
	if len(kept) > 100 || len(state) > 4096 {
		t.Errorf("materialize has %d bytes, the sweep %d", len(kept), len(state))
	}
	if n := b.sent(t) - sent; n > 100_000 {
		t.Errorf("Redis sent %d bytes", n)
	}
}

// sent is how many bytes the server has sent to all clients.
func (b bench) sent(t *testing.T) int {
	t.Helper()
	info, err := b.client.InfoMap(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(info["Stats"]["total_net_output_bytes"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// No settings at all are stored by the next update; an empty text is not ours, and
// stays in the way of that.
func TestEmptySettingsAreOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		if err := b.client.Set(t.Context(), "activityd_settings", "", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Begin(t.Context(), []member.ID{user}); !errors.Is(err, index.ErrSettings) {
			t.Errorf("begin: %v, want ErrSettings", err)
		}
	})
}
