package once_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/once"
	"github.com/activityd/activityd/internal/once/oncetest"
)

// counter returns a counter of epochs, which outlives all Redis servers.
func counter() func(context.Context) (uint64, error) {
	var n atomic.Uint64
	return func(context.Context) (uint64, error) { return n.Add(1), nil }
}

// connect returns a client of a server.
func connect(t testing.TB, server *localserver.Redis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// harness is a store in Redis to be tested.
func harness(client redis.UniversalClient, store once.Store) oncetest.Harness {
	return oncetest.Harness{Store: store, Age: func(name string, d time.Duration) error {
		ctx, key := context.Background(), once.StateKey(name)
		ttl, err := client.PTTL(ctx, key).Result()
		if err != nil || ttl < 0 {
			return err
		}
		return client.PExpire(ctx, key, ttl-d).Err()
	}}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client, counter())
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	client := startCluster(t)
	store := once.NewRedis(client, counter())
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
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
