package index_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// In a cluster each node has copies of the broadcast set, which hold more members than a set, do not expire, and
// come with the candidates of each member.
func TestCopiesInACluster(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now() // a probe is not forgotten
	ix, ctx := index.New(client, index.Options{Settings: settings, SetLife: 1 << 40, Now: func() time.Time { return now }}), t.Context()
	refill := func(user member.ID, entries []index.Entry) {
		t.Helper()
		u := ix.Begin(ctx, []member.ID{user})[0]
		if r := ix.Apply(ctx, []index.Change{{Update: u, WithRefill: true, Refill: entries}})[0]; u.Err != nil || r.Err != nil || r.Outcome != index.Applied {
			t.Fatal(u.Err, r)
		}
	}
	const broadcasts = 50
	for _, of := range member.Copies {
		entries := []index.Entry{{Contact: of, Score: 1}}
		for i := range broadcasts {
			entries = append(entries, index.Entry{Contact: member.ID(1000 + i), Score: uint64(1000 + i)})
		}
		refill(of, entries)
	}
	var additions []index.Addition
	nodes := make(map[any]bool)
	for _, of := range member.Copies {
		additions = append(additions, index.Addition{Member: of, Entry: index.Entry{Contact: 1000, Score: 5000}})
		node, err := ix.Of(ctx, index.UserKey(of))
		if err != nil {
			t.Fatal(err)
		}
		nodes[node] = true
		if ttl, err := client.TTL(ctx, index.UserKey(of)).Result(); err != nil || ttl != -1 {
			t.Errorf("a copy expires after %v, %v", ttl, err)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("copies on %d nodes, want 3", len(nodes))
	}
	if missing, failed := ix.Add(ctx, additions); len(missing)+len(failed) > 0 {
		t.Fatal(missing, failed)
	}
	for user := member.ID(1); user <= 100; user++ {
		refill(user, []index.Entry{{Contact: 7, Score: 70}})
		set, b, err := ix.Candidates(ctx, user)
		if err != nil || b.Err != nil || len(set) != 1 || len(b.Entries) != 32 || b.Entries[0] != (index.Entry{Contact: 1000, Score: 5000}) || b.Bound != 1000+broadcasts-32 {
			t.Fatalf("%v, %+v, %v", set, b, err)
		}
	}
	if err := client.Del(ctx, index.UserKey(index.CopyFor(1))).Err(); err != nil {
		t.Fatal(err)
	}
	if set, b, err := ix.Candidates(ctx, 1); err != nil || len(set) != 1 || !errors.Is(b.Err, index.ErrMissing) {
		t.Errorf("%v, %+v, %v, want a missing copy", set, b, err)
	}

	user := member.ID(1)
	for of := func(id member.ID) any {
		node, err := ix.Of(ctx, index.UserKey(id))
		if err != nil {
			t.Fatal(err)
		}
		return node
	}; of(user) == of(index.CopyFor(user)); {
		user++
	}
	refill(user, []index.Entry{{Contact: 7, Score: 70}})
	key := index.UserKey(index.CopyFor(user))
	i := slices.IndexFunc(c.Nodes, func(n *clustertest.Node) bool { return n.Client.Exists(ctx, key).Err() == nil })
	must(t, c.Nodes[i].Pause())
	if status := ix.Probe(ctx); status.Away == 0 {
		t.Errorf("status %+v", status)
	}
	must(t, c.Nodes[i].Resume())
	if status := ix.Probe(ctx); status.Away > 0 {
		t.Errorf("status %+v", status)
	}
	if set, b, err := ix.Candidates(ctx, user); err != nil || len(set) != 1 || b.Err != nil || len(b.Entries) != 32 || !b.IsBehind {
		t.Errorf("%v, %+v, %v, want a copy that is behind", set, b, err)
	}

	// A copy on a node that the last probe found away is not read, although it answers again: what waited for it may
	// not be there yet. The set on another node is.
	must(t, c.Nodes[i].Kill())
	if status := ix.Probe(ctx); status.Away == 0 {
		t.Errorf("status %+v", status)
	}
	must(t, c.Nodes[i].Restart(ctx))
	must(t, c.AwaitOK(ctx, c.Nodes...))
	if set, b, err := ix.Candidates(ctx, user); err != nil || len(set) != 1 || !errors.Is(b.Err, index.ErrUnavailable) || len(b.Entries) > 0 || b.IsBehind {
		t.Errorf("%v, %+v, %v, want a copy that is away", set, b, err)
	}
}

// TestACopyIsKnownByItsVersion: whatever happens to a copy, an index that has read it before says of it what one says that never
// did, and asks for no members while it is the same.
func TestACopyIsKnownByItsVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	reads, forgets := index.New(b.client, index.Options{Settings: b.Settings()}), index.New(b.client, index.Options{Settings: b.Settings()})
	rapid.Check(t, func(rt *rapid.T) {
		if err := b.client.FlushDB(t.Context()).Err(); err != nil {
			rt.Fatal(err)
		}
		reads.ForgetCopies()
		c := &copyMachine{T: rt, reads: reads, writes: b.Index, forgets: forgets, client: b.client, of: index.CopyFor(user)}
		c.refill(rt, user, []index.Entry{{Contact: 7, Score: 70}})
		c.refillCopy(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":    c.compare,
			"add": c.add,
			"add twice": func(t *rapid.T) {
				c.writes.AddTwice(c.Context(), index.Addition{Member: c.of, Entry: someBroadcast(t)}, func() {
					c.compare(t)
					c.add(t)
				})
			},
			"refill":   c.refillCopy,
			"mend":     c.mend,
			"no copy":  func(t *rapid.T) { c.refill(t, c.of, nil) },
			"is lost":  func(*rapid.T) { c.client.Del(c.Context(), index.UserKey(c.of)) },
			"is none":  func(*rapid.T) { c.client.Set(c.Context(), index.UserKey(c.of), "no set", 0) },
			"deep":     func(*rapid.T) { c.deep = !c.deep },
			"as it is": func(*rapid.T) {},
		})
	})
}

// copyMachine has an index that reads a copy of the broadcast set again and again, one that writes it, and one that remembers nothing of it.
type copyMachine struct {
	*rapid.T
	reads, writes, forgets *index.Index
	client                 *redis.Client
	of                     member.ID
	deep                   bool // reads need more
}

// someBroadcast draws a broadcast member, of some more than a first page has.
func someBroadcast(t *rapid.T) index.Entry {
	return index.Entry{Contact: member.ID(rapid.IntRange(1000, 1040).Draw(t, "member")), Score: rapid.Uint64Range(1, 100).Draw(t, "score")}
}

func (c *copyMachine) add(t *rapid.T) {
	missing, failed := c.writes.Add(c.Context(), []index.Addition{{Member: c.of, Entry: someBroadcast(t)}})
	if len(failed) > 0 {
		t.Fatal(missing, failed)
	}
}

// refill is about a user's set, of which all that is left out is taken out.
func (c *copyMachine) refill(t *rapid.T, user member.ID, entries []index.Entry) {
	u := c.writes.Begin(c.Context(), []member.ID{user})[0]
	change := index.Change{Update: u, WithRefill: true, Refill: entries}
	for _, e := range u.Members {
		if !slices.ContainsFunc(entries, func(f index.Entry) bool { return f.Contact == e.Contact }) {
			change.Remove = append(change.Remove, e.Contact)
		}
	}
	if r := c.writes.Apply(c.Context(), []index.Change{change})[0]; u.Err != nil || r.Err != nil || r.Outcome != index.Applied {
		t.Fatal(u.Err, r)
	}
}

func (c *copyMachine) refillCopy(t *rapid.T) {
	entries := rapid.SliceOfNDistinct(rapid.Custom(someBroadcast), 0, 41, func(e index.Entry) member.ID { return e.Contact }).Draw(t, "entries")
	c.refill(t, c.of, append(entries, index.Entry{Contact: c.of, Score: 1}))
}

// mend lowers a score.
func (c *copyMachine) mend(t *rapid.T) {
	u := c.writes.Begin(c.Context(), []member.ID{c.of})[0]
	if len(u.Members) < 2 {
		t.Skip("it has no members")
	}
	e := rapid.SampledFrom(u.Members[1:]).Draw(t, "member")
	change := index.Change{Update: u, WithRefill: true, Refill: []index.Entry{{Contact: c.of, Score: 1}}}
	change.Correct = []index.Correction{{Contact: e.Contact, Seen: e.Score, Score: rapid.Uint64Range(1, e.Score).Draw(t, "lower")}}
	if r := c.writes.Apply(c.Context(), []index.Change{change})[0]; r.Err != nil || r.Outcome != index.Applied {
		t.Fatal(r)
	}
}

func (c *copyMachine) compare(t *rapid.T) {
	c.forgets.ForgetCopies()
	got, want := c.seen(t, c.reads), c.seen(t, c.forgets)
	if got != want {
		t.Fatalf("the copy is said to be\n%s\nand is\n%s", got, want)
	}
	before := c.calls(t, "zrevrange")
	if again := c.seen(t, c.reads); again != want {
		t.Fatalf("the second time it is said to be\n%s\nand is\n%s", again, want)
	}
	// The viewer's set, and without a copy that has a version twice the copy.
	if n := c.calls(t, "zrevrange") - before; n != 1 && want[0] == '{' {
		t.Fatalf("the copy was known, and %d sets were read", n)
	}
}

// seen is what an index says of the copy.
func (c *copyMachine) seen(t *rapid.T, ix *index.Index) string {
	_, b, err := ix.Candidates(c.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	if b.Err != nil {
		return b.Err.Error()
	}
	more := index.Copy{}
	if c.deep {
		more = b.More(c.Context(), 5)
	}
	return fmt.Sprint(index.Entry{Contact: b.Of}, b.Entries, b.Bound, more.Entries, more.Bound, more.Err)
}

// calls returns how often the server ran a command.
func (c *copyMachine) calls(t *rapid.T, command string) (n int) {
	stats, err := c.client.Info(c.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(stats, "cmdstat_"+command+":calls="); ok {
		number, _, _ := strings.Cut(rest, ",")
		n, _ = strconv.Atoi(number)
	}
	return n
}
