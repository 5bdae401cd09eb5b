package index_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
)

// In a cluster a script may touch one slot only, pipelines are split over the
// nodes, and a scan sees one node.
func TestCluster(t *testing.T) {
	t.Parallel()
	client := startCluster(t)
	ix, ledger := index.New(client, index.Options{Settings: settings(t, 10, 20, 0)}), index.NewLedger(client)
	ctx := t.Context()
	var users []member.ID
	var additions []index.Addition
	for id := member.ID(1); id <= 50; id++ {
		users = append(users, id)
		additions = append(additions, index.Addition{Member: id, Entry: index.Entry{Contact: 4, Score: 400}})
	}
	updates, err := ix.Begin(ctx, users)
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]index.Change, len(updates))
	for i, u := range updates {
		changes[i] = index.Change{Update: u, WithRefill: true, Refill: ladder(3)}
	}
	outcomes, err := ix.Apply(ctx, changes)
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := ix.Add(ctx, additions); err != nil || len(missing) > 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	for i, id := range users {
		got, err := ix.Candidates(ctx, id)
		if outcomes[i] != index.Applied || err != nil || len(got) != 4 || got[0].Contact != 4 {
			t.Errorf("set of %s: %v, %v, %v", id, outcomes[i], got, err)
		}
	}
	for want := int64(1); want <= 2; want++ { // its marks lie on both nodes
		if m, err := ledger.RaiseGeneration(ctx); err != nil || slices.Min(m.Marks) != want || slices.Max(m.Marks) != want {
			t.Errorf("marks %v, %v", m, err)
		}
	}
	if err := ix.Probe(ctx); err != nil {
		t.Errorf("probe: %v", err)
	}
	if _, begun, err := ledger.BeginSweep(ctx, 1); err != nil || !begun {
		t.Errorf("begin the sweep: %v, %v", begun, err)
	}
	if saved, err := ledger.SaveSweep(ctx, 1, "here"); err != nil || !saved {
		t.Errorf("save the sweep: %v, %v", saved, err)
	}
	if sets, err := ix.Reset(ctx); err != nil || sets != 50 {
		t.Errorf("reset: %d sets, %v", sets, err)
	}
}

// startCluster returns a client of a cluster of two nodes, each with half of the
// slots.
func startCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	halves := [][2]string{{"0", "8191"}, {"8192", "16383"}}
	var nodes []*redis.Client
	var ports []string
	for _, slots := range halves {
		port, bus := freePort(t), freePort(t)
		servertest.Redis(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus)
		node := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
		t.Cleanup(func() { _ = node.Close() })
		if err := node.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]).Err(); err != nil {
			t.Fatal(err)
		}
		nodes, ports = append(nodes, node), append(ports, port, bus)
	}
	if err := nodes[0].Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", ports[2], ports[3]).Err(); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		awaitClusterState(t, node)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + ports[0], "127.0.0.1:" + ports[2]}})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// awaitClusterState waits until a node knows both halves.
func awaitClusterState(t *testing.T, node *redis.Client) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		info := node.ClusterInfo(t.Context()).Val()
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") && strings.Contains(info, "cluster_size:2") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no cluster after 20 s: %s", info)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
