package index_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/miniredistest"
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
			b.client.Del(t.Context(), "user_12345")
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
	known := ""
	of := func(id func() string) index.Options { return index.Options{Database: id} }
	b := newBench(t, &redis.Options{Addr: miniredistest.Run(t).Addr()}, of(func() string { return known }))
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
	must(t, b.Probe(t.Context()))
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
	if err := b.Probe(t.Context()); !errors.Is(err, index.ErrSettings) {
		t.Errorf("probe: %v", err)
	}
	refused(b)
	other.holds(t, ladder(2))
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

// An update takes a command to begin and a command to apply; a read takes a single command.
func TestCommandsOfAnUpdate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3)) // the scripts are known after it
		b.refill(t, ladder(3))
		c := &commands{}
		b.AddHook(c)
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
		counted("begin of a missing set", 1, func() { _, _ = b.Begin(t.Context(), []member.ID{77}) })
		counted("read", 1, func() { _, _ = b.Candidates(t.Context(), user) })
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
	must(t, b.Probe(t.Context()))
	b.refill(t, ladder(3))
	b.holds(t, ladder(3))
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
		server := miniredistest.Run(t)
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

// Foreign texts in place of activityd's are neither fetched nor repeated as a whole.
func TestGiantTextsAreCutOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	giant := strings.Repeat("€", 1<<20)
	must(t, b.client.Set(ctx, "activityd_settings", giant, 0).Err())
	sent := b.sent(t)
	_, readErr := b.Candidates(ctx, user)
	_, beginErr := b.Begin(ctx, []member.ID{user})
	_, lookErr := b.Look(ctx, []member.ID{user})
	for name, err := range map[string]error{"candidates": readErr, "begin": beginErr, "look": lookErr, "check": b.Check(ctx), "probe": b.Probe(ctx)} {
		if !errors.Is(err, index.ErrSettings) || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "€€…") {
			t.Errorf("%s: %.2000v", name, err)
		}
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
