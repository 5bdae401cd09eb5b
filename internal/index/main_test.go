package index_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestMain runs twice as many tests at once as there are processors, unless -parallel says
// otherwise: most of their time they wait for servers.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	servertest.Main(m)
}

// bench is an index over some Redis, with clients through which the tests look at it.
type bench struct {
	*index.Index
	client *redis.Client
}

// The methods of the index with the first error of all users: most tests are about a single user,
// or expect no error.

func (b bench) Begin(ctx context.Context, users []member.ID) ([]index.Update, error) {
	updates := b.Index.Begin(ctx, users)
	for _, u := range updates {
		if u.Err != nil {
			return nil, u.Err
		}
	}
	return updates, nil
}

func (b bench) Apply(ctx context.Context, changes []index.Change) ([]index.Outcome, error) {
	var outcomes []index.Outcome
	for _, r := range b.Index.Apply(ctx, changes) {
		if r.Err != nil {
			return nil, r.Err
		}
		outcomes = append(outcomes, r.Outcome)
	}
	return outcomes, nil
}

func (b bench) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, err error) {
	missing, failed := b.Index.Add(ctx, additions)
	for _, err := range failed {
		return missing, err
	}
	return missing, nil
}

func (b bench) Look(ctx context.Context, users []member.ID) ([]index.Set, error) {
	sets := b.Index.Look(ctx, users)
	for _, s := range sets {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return sets, nil
}

func (b bench) Probe(ctx context.Context) error { return b.Index.Probe(ctx).Err() }

// onBoth runs a test against miniredis and against a real Redis, so that both stay alike.
func onBoth(t *testing.T, test func(t *testing.T, b bench)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, newBench(t, &redis.Options{Addr: miniredistest.Run(t).Addr()}, index.Options{}))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{}))
	})
}

// newBench returns an index with need 10, max 12 and min 10 unless o says
// otherwise.
func newBench(t *testing.T, server *redis.Options, o index.Options) bench {
	t.Helper()
	server.ContextTimeoutEnabled = true
	server.MaxRetries, server.DialerRetries = -1, 1
	server.ReadTimeout = cmp.Or(server.ReadTimeout, time.Minute) // miniredis is slow on a busy machine
	client := redis.NewClient(server)
	t.Cleanup(func() { _ = client.Close() })
	if o.Settings == (index.Settings{}) {
		o.Settings = settings(t, 10, 20, 0)
	}
	b := bench{index.New(client, o), client}
	t.Cleanup(func() { _ = b.Close() })
	_ = b.Probe(t.Context()) // the server is new
	return b
}

func settings(t *testing.T, need, headroom, fewest int) index.Settings {
	t.Helper()
	s, err := index.NewSettings(need, headroom, fewest)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// user and others are the members of most tests.
const user member.ID = 12345

// entries makes entries of pairs of contact and score.
func entries(pairs ...uint64) []index.Entry {
	var out []index.Entry
	for p := range slices.Chunk(pairs, 2) {
		out = append(out, index.Entry{Contact: member.ID(p[0]), Score: p[1]})
	}
	return out
}

// ladder returns entries for contacts 1 to n with scores 100·contact.
func ladder(n uint64) []index.Entry {
	var out []index.Entry
	for i := uint64(1); i <= n; i++ {
		out = append(out, index.Entry{Contact: member.ID(i), Score: 100 * i})
	}
	return out
}

func (b bench) begin(t *testing.T) index.Update {
	t.Helper()
	updates, err := b.Begin(t.Context(), []member.ID{user})
	if err != nil {
		t.Fatal(err)
	}
	return updates[0]
}

func (b bench) apply(t *testing.T, c index.Change) index.Outcome {
	t.Helper()
	outcomes, err := b.Apply(t.Context(), []index.Change{c})
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[0]
}

func (b bench) refill(t *testing.T, list []index.Entry) {
	t.Helper()
	if got := b.apply(t, index.Change{Update: b.begin(t), WithRefill: true, Refill: list}); got != index.Applied {
		t.Fatalf("refill: %v", got)
	}
}

// add adds one upload to the user's set and returns whether the set was missing.
func (b bench) add(t *testing.T, contact member.ID, score uint64) (missing bool) {
	t.Helper()
	list, err := b.Add(t.Context(), []index.Addition{{Member: user, Entry: index.Entry{Contact: contact, Score: score}}})
	if err != nil {
		t.Fatal(err)
	}
	return len(list) > 0
}

// holds compares the set with want, which lists contact and score, lowest first.
func (b bench) holds(t *testing.T, want []index.Entry) {
	t.Helper()
	got, err := b.client.ZRangeWithScores(context.Background(), "user_12345", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, z := range got {
		lines = append(lines, fmt.Sprintf("%s:%.0f", z.Member, z.Score))
	}
	var wanted []string
	for _, e := range want {
		wanted = append(wanted, fmt.Sprintf("%d:%d", e.Contact, e.Score))
	}
	if !slices.Equal(lines, wanted) {
		t.Fatalf("the set holds %v, want %v", lines, wanted)
	}
}
