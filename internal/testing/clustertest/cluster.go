// Package clustertest starts private clusters of Redis, and a Redis that Sentinels watch, for tests: of
// the servers of package localserver.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/localserver"
)

// clusterSlots is how many slots a cluster has.
const clusterSlots = 16384

const (
	startTimeout = 2 * time.Minute
	pingInterval = 10 * time.Millisecond
)

// Cluster is a private Redis or Valkey cluster of masters and replicas. The masters share the slots evenly.
type Cluster struct {
	// Nodes are the masters, in the order of their slots, then the first replica of each, and so on: slot s
	// begins at Nodes[s*masters/16384], and replica r of master m is Nodes[(r+1)*masters+m]. A failover
	// changes the roles, not this order.
	Nodes []*Node

	masters int
}

// Node is a server of a [Cluster], or of a [Watched]. Tests can kill, pause and restart it.
type Node struct {
	*localserver.Redis

	// HostPort is its address on the loopback interface, by which the other nodes know it.
	HostPort string
	// ID is its name in the cluster. It survives a restart.
	ID string
	// Client is a plain client of this server alone, through its unix socket.
	Client *redis.Client
}

// StartCluster starts a cluster of masters, each with that many replicas, and returns once all nodes agree on
// it and the replicas follow. A slot stays available when another slot has no master. A node counts as dead
// after five seconds. args are added to each node's command line, and may change both. Nodes keep nothing on
// disk but their record of the cluster. ctx bounds the start only.
//
// Nodes listen on a loopback address, on Linux on a random one, so that no other program takes a port of a
// node that is down for a while.
func StartCluster(ctx context.Context, masters, replicas int, args ...string) (*Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("%s took longer than %v to start", "the cluster", startTimeout))
	defer cancel()
	c := &Cluster{masters: masters, Nodes: make([]*Node, masters*(1+replicas))}
	err := c.start(ctx, args)
	if err == nil {
		err = c.join(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// start starts the nodes.
func (c *Cluster) start(ctx context.Context, args []string) error {
	host, port, err := FreePorts(ctx, 2*len(c.Nodes))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range c.Nodes {
		group.Go(func() error {
			port := port + 2*i // the next port is that of the cluster's bus
			n, err := startNode(ctx, host, port, append([]string{
				"--cluster-enabled", "yes",
				"--cluster-port", strconv.Itoa(port + 1),
				"--cluster-announce-ip", host,
				"--cluster-node-timeout", "5000",
				"--cluster-require-full-coverage", "no",
				"--cluster-allow-replica-migration", "no", // no node changes its role by itself but in a failover
				"--repl-diskless-sync-delay", "0",
				"--repl-ping-replica-period", "1", // a replica is announced after its first ping
			}, args...)...)
			if err == nil {
				n.ID, err = n.Client.Do(ctx, "CLUSTER", "MYID").Text()
			}
			c.Nodes[i] = n
			return err
		})
	}
	return group.Wait()
}

// FreePorts returns a loopback address and the first of n adjacent ports that nothing listens on. The ports
// lie below the range that a system gives to outgoing connections.
func FreePorts(ctx context.Context, n int) (host string, first int, err error) {
	for range 100 {
		host, first = "127.0.0.1", 10_000+rand.N(20_000)
		if runtime.GOOS == "linux" { // where all of 127.0.0.0/8 is this machine
			host = fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250))
		}
		if err = areFree(ctx, host, first, n); err == nil {
			break
		}
	}
	return host, first, err
}

// areFree returns an error unless n ports from first on can be listened on.
func areFree(ctx context.Context, host string, first, n int) error {
	for port := first; port < first+n; port++ {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts a server that knows of no other node yet and also listens on a port.
func startNode(ctx context.Context, host string, port int, args ...string) (*Node, error) {
	r, err := localserver.StartRedis(ctx, append([]string{"--bind", host, "--port", strconv.Itoa(port)}, args...)...)
	if err != nil {
		return nil, err
	}
	return newNode(r, host, port), nil
}

func newNode(r *localserver.Redis, host string, port int) *Node {
	return &Node{
		Redis: r, HostPort: net.JoinHostPort(host, strconv.Itoa(port)),
		Client: redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr(), ContextTimeoutEnabled: true}),
	}
}

// join makes a cluster of new nodes.
func (c *Cluster) join(ctx context.Context) error {
	for i, n := range c.Nodes {
		if i < c.masters {
			// The nodes need not find out that two have the same epoch.
			epoch := n.Client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
			slots := n.Client.ClusterAddSlotsRange(ctx, c.firstSlot(i), c.firstSlot(i+1)-1).Err()
			if err := errors.Join(epoch, slots); err != nil {
				return fmt.Errorf("give %s its slots: %w", n.HostPort, err)
			}
		}
		for _, other := range c.Nodes[:i] { // gossip alone would take longer
			if err := n.meet(ctx, other); err != nil {
				return err
			}
		}
	}
	for i, n := range c.Nodes[c.masters:] {
		master := c.Nodes[i%c.masters]
		err := await(ctx, "follow "+master.HostPort, func() error { return n.Client.ClusterReplicate(ctx, master.ID).Err() })
		if err != nil {
			return err
		}
	}
	return c.AwaitOK(ctx)
}

// firstSlot is the first slot of the i-th master.
func (c *Cluster) firstSlot(i int) int { return (i*clusterSlots + c.masters - 1) / c.masters }

// meet makes n introduce itself to another node.
func (n *Node) meet(ctx context.Context, other *Node) error {
	host, port, err := net.SplitHostPort(other.HostPort)
	if err != nil {
		return err
	}
	bus, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	return n.Client.Do(ctx, "CLUSTER", "MEET", host, port, bus+1).Err()
}

// AwaitOK waits for the end of a failover, or of a restart. Each of the nodes must then know a living master
// for each slot, and consider exactly the nodes alive. Without arguments it waits for all nodes.
func (c *Cluster) AwaitOK(ctx context.Context, nodes ...*Node) error {
	if len(nodes) == 0 {
		nodes = c.Nodes
	}
	ids := make(map[string]bool)
	for _, n := range nodes {
		ids[n.ID] = true
	}
	for _, n := range nodes {
		if err := await(ctx, "agree with the cluster", func() error { return n.ok(ctx, ids) }); err != nil {
			return fmt.Errorf("%s: %w", n.HostPort, err)
		}
	}
	return nil
}

// await repeats do until it succeeds.
func await(ctx context.Context, what string, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		if ended := retry.Sleep(ctx, pingInterval); ended != nil {
			return fmt.Errorf("%s: %w (%w)", what, ended, err)
		}
	}
}

// ok returns an error unless the node knows a living master for each slot, and considers exactly the given
// nodes alive.
func (n *Node) ok(ctx context.Context, nodes map[string]bool) error {
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
	if !maps.Equal(living, nodes) {
		return fmt.Errorf("%d nodes are taken for alive, want %d: %v", len(living), len(nodes), ranges)
	}
	return nil
}

// Addrs are the addresses of all nodes, for go-redis' ClusterOptions.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.HostPort
	}
	return addrs
}

// URL is the cluster's address for activityd's --redis-url.
func (c *Cluster) URL() string {
	addrs := c.Addrs()
	return "redis+cluster://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
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
	host, port, err := net.SplitHostPort(to.HostPort)
	if err != nil {
		return err
	}
	for {
		keys, err := n.Client.ClusterGetKeysInSlot(ctx, slot, atOnce).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		migrate := []any{"MIGRATE", host, port, "", 0, (10 * time.Second).Milliseconds(), "KEYS"}
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

// Close stops all nodes and removes their folders.
func (c *Cluster) Close() error {
	var group errgroup.Group
	errs := make([]error, len(c.Nodes))
	for i, n := range c.Nodes {
		if n != nil { // a node that did not start
			group.Go(func() error {
				errs[i] = n.Close()
				return nil
			})
		}
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// Close stops the node and removes its folder.
func (n *Node) Close() error {
	err := n.Client.Close()
	if errors.Is(err, redis.ErrClosed) { // by an earlier Close
		err = nil
	}
	return errors.Join(err, n.Redis.Close())
}
