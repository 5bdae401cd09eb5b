package redisnodes

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// openCluster makes the client of a cluster. Nodes are asked for their slots over connections that are not looked
// at, since nothing may be believed yet.
func (ns *Nodes) openCluster(o *redis.ClusterOptions) {
	ns.seeds = o.Addrs
	ns.plain = plainOptions(redis.Options{
		Dialer: o.Dialer, TLSConfig: o.TLSConfig, Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
	})
	own := *o
	own.ClusterSlots = ns.findSlots
	own.NewClient = func(o *redis.Options) *redis.Client {
		o.Addr = cmp.Or(o.NodeAddress, o.Addr) // that of findSlots: go-redis takes the host of loopback addresses away
		return ns.open(*o)
	}
	own.MaxRedirects, own.MinRetryBackoff, own.MaxRetryBackoff = 5, 5*time.Millisecond, 50*time.Millisecond
	own.PushNotificationProcessor, own.MaintNotificationsConfig = nil, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	ns.cluster = redis.NewClusterClient(&own)
}

// masters returns the nodes that have slots, in the order of their addresses: the server, or those of the cluster as they are
// now. Without an answer they are those of before, and the error says so.
func (ns *Nodes) masters(ctx context.Context) (masters []*Node, err error) {
	if ns.cluster != nil {
		err = ns.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // calls findSlots
	}
	l := ns.layout.Load()
	if l == nil {
		return nil, cmp.Or(err, errNoNode)
	}
	return slices.SortedFunc(maps.Keys(*l), func(a, b *Node) int { return strings.Compare(a.addr, b.addr) }), nil
}

// findSlots asks one server after the other which slots are where: the masters, then the seeds, then those of before. Those that
// hang come last.
func (ns *Nodes) findSlots(ctx context.Context) (slots []redis.ClusterSlot, err error) {
	var nodes []*Node
	if l := ns.layout.Load(); l != nil {
		nodes = slices.Collect(maps.Keys(*l))
		rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] }) // one may be mistaken
	}
	for _, addr := range ns.seeds {
		nodes = append(nodes, ns.node(addr))
	}
	asked := make(map[*Node]bool)
	nodes = slices.DeleteFunc(append(nodes, ns.all()...), func(n *Node) bool {
		wasAsked := asked[n]
		asked[n] = true
		return wasAsked
	})
	slices.SortStableFunc(nodes, func(a, b *Node) int { return cmp.Compare(gauge[a.Allow() != nil], gauge[b.Allow() != nil]) })
	for _, n := range nodes {
		if slots, err = n.askSlots(ctx); err == nil {
			l := make(map[*Node]int)
			for _, s := range slots {
				l[ns.node(s.Nodes[0].Addr)] += s.End - s.Start + 1
			}
			ns.layout.Store(&l)
			return slots, nil
		}
	}
	return nil, cmp.Or(err, errNoNode)
}

// askSlots returns the slots by the answer of one server, with their masters. It leaves out those of a
// master without an address.
func (n *Node) askSlots(ctx context.Context) ([]redis.ClusterSlot, error) {
	c := n.plainClient(CallTimeout)
	defer c.Close()                          //nolint:errcheck // nothing depends on it
	all, err := c.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
	if err != nil {
		return nil, err
	}
	var slots []redis.ClusterSlot
	for _, s := range all {
		if len(s.Nodes) > 0 && s.Nodes[0].Addr != net.JoinHostPort("", "0") {
			s.Nodes = s.Nodes[:1]
			s.Nodes[0].Addr = reachable(s.Nodes[0].Addr, n.addr)
			slots = append(slots, s)
		}
	}
	if len(slots) == 0 { // it knows of no cluster
		return nil, errNoNode
	}
	return slots, nil
}

// reachable returns the address of a node by the answer of the server at asked. A server may leave out its own
// host, has the port 0 with TLS, and may know another one by a loopback address of its machine.
func reachable(addr, asked string) string {
	host, port, err := net.SplitHostPort(addr)
	askedHost, askedPort, err2 := net.SplitHostPort(asked)
	if cmp.Or(err, err2) != nil {
		return addr
	}
	isLoopback := func(host string) bool { ip := net.ParseIP(host); return ip != nil && ip.IsLoopback() }
	if host == "" || isLoopback(host) && net.ParseIP(askedHost) != nil && !isLoopback(askedHost) {
		host = askedHost
	}
	if port == "0" {
		port = askedPort
	}
	return net.JoinHostPort(host, port)
}
