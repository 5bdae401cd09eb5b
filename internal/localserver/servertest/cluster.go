package servertest

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCluster returns a client of a private cluster of two nodes, each with half of the
// slots.
func RedisCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	halves := [][2]string{{"0", "8191"}, {"8192", "16383"}}
	var nodes []*redis.Client
	var ports []string
	for _, slots := range halves {
		port, bus := FreePort(t), FreePort(t)
		Redis(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus)
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
func awaitClusterState(t testing.TB, node *redis.Client) {
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

// FreePort returns a port of this machine that nothing listens on.
func FreePort(t testing.TB) string {
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
