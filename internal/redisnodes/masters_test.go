package redisnodes

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// blind makes some servers of a cluster answer CLUSTER SLOTS as if they did not know the address
// of one of the masters.
type blind struct {
	passing

	server string // where it is
	lost   string // the address
	isSo   func(server string) bool
}

func (b blind) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if asked, ok := cmd.(*redis.ClusterSlotsCmd); ok && err == nil && b.isSo(b.server) {
			for _, slots := range asked.Val() {
				for i := range slots.Nodes {
					if slots.Nodes[i].Addr == b.lost {
						slots.Nodes[i].Addr = net.JoinHostPort("", "0")
					}
				}
			}
		}
		return err
	}
}

// A master whose address the server that is asked does not know, as after two have exchanged theirs,
// is none until a server is asked that does, and nothing is in its place.
func TestAMasterWithoutAnAddress(t *testing.T) {
	t.Parallel()
	servers := servertest.Cluster(t, 3, 0, "--cluster-node-timeout", "60000").Addrs()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	var blinded atomic.Int64 // so many of the servers
	lost := servers[2]
	client.OnNewNode(func(server *redis.Client) { // its hook is called before that of the nodes sees the answer
		addr := server.Options().Addr
		server.AddHook(blind{server: addr, lost: lost, isSo: func(server string) bool {
			return int64(slices.Index(servers, server)) < blinded.Load()
		}})
	})
	slices.Sort(servers)
	ctx := t.Context()
	others := slices.DeleteFunc(slices.Clone(servers), func(addr string) bool { return addr == lost })
	for _, c := range []struct {
		blinded int64
		want    [][]string // one of these
	}{{0, [][]string{servers}}, {2, [][]string{servers, others}}, {3, [][]string{others}}, {0, [][]string{servers}}} {
		blinded.Store(c.blinded)
		for asked := 0; asked < 20; { // the servers are asked in random order
			var got []string
			began := time.Now()
			s := ns.Probe(ctx)
			if time.Since(began) >= findAgainTimeout {
				continue // the servers may have been asked for too long, on a slow machine
			}
			asked++
			for _, n := range s.Nodes {
				got = append(got, n.Node)
			}
			if s.Err() != nil || !slices.ContainsFunc(c.want, func(want []string) bool { return slices.Equal(got, want) }) {
				t.Fatalf("%d of 3 servers do not know %s: the masters are %v, want one of %v (%v)", c.blinded, lost, got, c.want, s.Err())
			}
		}
	}
}

// Two masters exchange their addresses, as hosts do that a restart gives those of each other: no
// other address is taken for that of a master until the servers agree.
func TestMastersThatExchangeTheirAddresses(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t, 3, 0, "--cluster-node-timeout", "5000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	ctx := t.Context()
	if err := ns.Probe(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	addrs := cluster.Addrs()
	if err := cluster.ExchangeAddrs(ctx, cluster.Nodes[0], cluster.Nodes[1]); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "all can be used", func() bool {
		s := ns.Probe(ctx)
		for _, n := range s.Nodes {
			if !slices.Contains(addrs, n.Node) {
				t.Fatalf("%s is a master: %+v", n.Node, s.Nodes)
			}
		}
		return s.Err() == nil && len(s.Nodes) == 3 && cluster.AwaitOK(ctx) == nil
	})
}

// A node whose client was closed, as go-redis does with that of a node which has left the
// cluster, is dropped. One that is a replica stays.
func TestANodeThatHasLeftIsDropped(t *testing.T) {
	t.Parallel()
	ns, client, _ := newNodes(t)
	ctx := t.Context()
	replicas := make(chan *redis.Client, 3) // ForEachSlave calls from a goroutine for each
	err := client.ForEachSlave(ctx, func(_ context.Context, replica *redis.Client) error {
		ns.nodeFor(replica)
		replicas <- replica
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	left := <-replicas
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ns.Probe(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	if ns.nodes[left] != nil {
		t.Error("the node is kept")
	}
	if len(ns.nodes) != 5 {
		t.Errorf("%d nodes are kept, want 5", len(ns.nodes))
	}
}

// takenOver makes another process take over the lock of a purge while it deletes a page.
type takenOver struct {
	passing

	other *redis.Client
}

func (h takenOver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "unlink" {
			if err := h.other.Set(ctx, purgeKey(""), "another's", purgeTTL).Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// A process that was paused while it deleted old sets, until another one had its lock, leaves
// the lock alone, and does not say that the rest is deleted.
func TestAPurgeThatLostItsLockEnds(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	open := func() *redis.Client {
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client, other := open(), open()
	ctx := t.Context()
	ns := New(client, Options{Pattern: "user_*", Owns: func(string) bool { return true }})
	if err := ns.Probe(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.ZAdd(ctx, "user_7", redis.Z{Score: 1, Member: 8}).Err(), other.Set(ctx, serverKey(""), "former", 0).Err()); err != nil {
		t.Fatal(err)
	}
	client.AddHook(takenOver{other: other})
	_ = ns.probe(ctx, ctx) // begins the purge
	ns.purges.Wait()
	if n := other.Exists(ctx, "user_7").Val(); n != 0 {
		t.Error("no page was deleted")
	}
	if lock := other.Get(ctx, purgeKey("")).Val(); lock != "another's" {
		t.Errorf("the lock of another process is %q", lock)
	}
	if err := ns.Probe(ctx).Err(); !errors.Is(err, ErrUnknown) {
		t.Errorf("the node is settled: %v", err)
	}
}
