package servertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// Node is a server of a [Cluster], or of a [Watched]. Tests can kill, pause and restart it.
type Node struct {
	*localserver.Redis

	host string
	port int
	// HostPort is its address on the loopback interface, by which the other nodes know it.
	HostPort string
	// ID is its name in a cluster. It survives a restart.
	ID string
	// Client is a plain client of this server alone, through its unix socket.
	Client *redis.Client
}

func newNode(host string, port int) *Node {
	return &Node{host: host, port: port, HostPort: net.JoinHostPort(host, strconv.Itoa(port))}
}

// listen starts the node's server on its port, too.
func (n *Node) listen(t testing.TB, args ...string) {
	t.Helper()
	n.runs(t, Redis(t, append([]string{"--bind", n.host, "--port", strconv.Itoa(n.port)}, args...)...))
}

func (n *Node) runs(t testing.TB, r *localserver.Redis) {
	n.Redis, n.Client = r, redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = n.Client.Close() })
}

func addrs(nodes []*Node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.HostPort)
	}
	return list
}

// clusterSlots is how many slots a cluster has.
const clusterSlots = 16384

// Cluster is a Redis or Valkey cluster of masters and replicas. The masters share the slots evenly.
type Cluster struct {
	// Nodes are the masters, in the order of their slots, then the first replica of each, and so on: slot s
	// begins at Nodes[s*masters/16384], and replica r of master m is Nodes[(r+1)*masters+m]. A failover
	// changes the roles, not this order.
	Nodes []*Node
}

// NewCluster returns an empty cluster that is this test's alone, once all nodes agree on it and the replicas follow.
// A slot stays available when another slot has no master. A node counts as dead after five seconds. args are added
// to each node's command line, and may change both. Nodes keep nothing on disk but their record of the cluster.
//
// Nodes listen on a loopback address, on Linux on a random one, so that no other program takes a port of a
// node that is down for a while.
func NewCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	host, port := freePorts(t, 2*masters*(1+replicas))
	for i := range masters * (1 + replicas) {
		n, id := newNode(host, port+2*i), make([]byte, 20)
		_, _ = rand.Read(id) // it never fails
		n.ID = hex.EncodeToString(id)
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		record := filepath.Join(t.TempDir(), "nodes.conf")
		if err := os.WriteFile(record, []byte(c.record(n, masters)), 0o600); err != nil {
			t.Fatalf("servertest: %v", err)
		}
		n.listen(t, append([]string{
			"--cluster-enabled", "yes",
			"--cluster-config-file", record,
			"--cluster-port", strconv.Itoa(n.port + 1),
			"--cluster-announce-ip", host,
			"--cluster-node-timeout", "5000",
			"--cluster-require-full-coverage", "no",
			"--cluster-allow-replica-migration", "no", // no node changes its role by itself but in a failover
			"--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1", // a replica is announced after its first ping
		}, args...)...)
	}
	c.AwaitOK(t)
	return c
}

// record returns the cluster as a node writes it down: the node needs neither to meet the others nor to get slots.
func (c *Cluster) record(self *Node, masters int) string {
	var text strings.Builder
	firstSlot := func(i int) int { return (i*clusterSlots + masters - 1) / masters }
	for i, n := range c.Nodes {
		role, follows, slots := "master", "-", fmt.Sprintf(" %d-%d", firstSlot(i), firstSlot(i+1)-1)
		if i >= masters {
			role, follows, slots = "slave", c.Nodes[i%masters].ID, ""
		}
		if n == self {
			role = "myself," + role
		}
		fmt.Fprintf(&text, "%s %s@%d %s %s 0 0 %d connected%s\n", n.ID, n.HostPort, n.port+1, role, follows, i%masters+1, slots)
	}
	fmt.Fprintf(&text, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return text.String()
}

// AwaitOK waits for the end of a failover, or of a restart. Each node must then know a living master for each slot,
// and consider all nodes alive.
func (c *Cluster) AwaitOK(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		await(t, n.HostPort+" agrees with the cluster", func() error { return n.ok(t.Context(), len(c.Nodes)) })
	}
}

// await is [Eventually] for a condition that explains itself.
func await(t testing.TB, what string, holds func() error) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Logf("servertest: %v", err)
		}
	}()
	Eventually(t, what, func() bool {
		err = holds()
		return err == nil
	})
}

// ok returns an error unless the node knows a living master for each slot, and considers so many nodes alive.
func (n *Node) ok(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a connection may never be answered
	defer cancel()
	info, err := n.Client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(clusterSlots)) {
		return fmt.Errorf("some slots have no master: %s", info)
	}
	ranges, err := n.Client.ClusterSlots(ctx).Result() //nolint:staticcheck // ClusterShards also lists a node that came back before it follows
	if err != nil {
		return err
	}
	living := make(map[string]bool)
	for _, r := range ranges {
		for _, node := range r.Nodes {
			living[node.ID] = true
		}
	}
	if len(living) != nodes {
		return fmt.Errorf("%d nodes are taken for alive, want %d: %v", len(living), nodes, ranges)
	}
	return nil
}

// Addrs are the addresses of all nodes, for go-redis' ClusterOptions.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// URL is the cluster's address for activityd's --redis-url.
func (c *Cluster) URL() string {
	list := c.Addrs()
	return "redis+cluster://" + list[0] + "?addr=" + strings.Join(list[1:], "&addr=")
}

// MoveSlots moves slots with their keys in turn, as redis-cli --cluster reshard does. In between, node from
// redirects commands on missing keys of the slot to node to. A command on several keys of the slot fails by
// TRYAGAIN unless all its keys are at a single node. After an error a slot may stay open.
func (c *Cluster) MoveSlots(ctx context.Context, from, to *Node, slots ...int) error {
	for _, slot := range slots {
		err := errors.Join(to.setSlot(ctx, slot, "IMPORTING", from.ID), from.setSlot(ctx, slot, "MIGRATING", to.ID))
		if err == nil {
			err = from.sendKeys(ctx, to, slot)
		}
		if err == nil { // the new owner first, so that the slot always has an owner
			err = errors.Join(to.setSlot(ctx, slot, "NODE", to.ID), from.setSlot(ctx, slot, "NODE", to.ID))
		}
		if err != nil {
			return fmt.Errorf("move slot %d from %s to %s: %w", slot, from.HostPort, to.HostPort, err)
		}
	}
	return nil
}

// sendKeys moves all keys of a slot.
func (n *Node) sendKeys(ctx context.Context, to *Node, slot int) error {
	const atOnce = 100
	for {
		keys, err := n.Client.ClusterGetKeysInSlot(ctx, slot, atOnce).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		migrate := []any{"MIGRATE", to.host, to.port, "", 0, (10 * time.Second).Milliseconds(), "KEYS"}
		for _, key := range keys {
			migrate = append(migrate, key)
		}
		if err := n.Client.Do(ctx, migrate...).Err(); err != nil {
			return err
		}
	}
}

func (n *Node) setSlot(ctx context.Context, slot int, state, id string) error {
	return n.Client.Do(ctx, "CLUSTER", "SETSLOT", slot, state, id).Err()
}

// RedisCluster returns a client of a cluster of two nodes, each with half of the slots.
func RedisCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: NewCluster(t, 2, 0).Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// FreePort returns a loopback address and a port of it that nothing listens on.
func FreePort(t testing.TB) (host, port string) {
	t.Helper()
	host, n := freePorts(t, 1)
	return host, strconv.Itoa(n)
}

// freePorts returns a loopback address and the first of n adjacent ports that nothing listens on. The ports
// lie below the range that a system gives to outgoing connections.
func freePorts(t testing.TB, n int) (host string, first int) {
	t.Helper()
	host, first = "127.0.0.1", 10_000+mathrand.N(20_000)
	if runtime.GOOS == "linux" { // where all of 127.0.0.0/8 is this machine
		host = fmt.Sprintf("127.%d.%d.%d", 1+mathrand.N(250), mathrand.N(250), 1+mathrand.N(250))
	}
	for port := first; port < first+n; port++ {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return freePorts(t, n) // others
		}
		_ = l.Close() // it was open
	}
	return host, first
}
