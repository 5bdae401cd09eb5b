package index_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/clustertest"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
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
