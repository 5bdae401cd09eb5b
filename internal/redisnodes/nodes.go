package redisnodes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are what [Nodes] are told of the data, of which they know nothing else.
type Options struct {
	Now func() time.Time // the clock for the age of what was seen; default time.Now
	// Stamp says what the data were made with.
	Stamp Stamp
	// Script is what a probe runs on each node with ScriptArgs and the keys ScriptKeys(tag), all
	// in one slot, to find out whether all can be written that has to be. Nil: nothing.
	Script     *Script
	ScriptKeys func(tag string) []string
	ScriptArgs []any
	// Pattern and Owns choose the keys that are deleted when the data may be old.
	Pattern string // as that of SCAN
	Owns    func(key string) bool
	// Probed is called after each probe with when it began, and [Status.Err].
	Probed func(began time.Time, err error)
}

// Nodes are one Redis server or the masters of a cluster. One server, also one behind a Sentinel,
// is one node. Its methods are safe for concurrent use.
type Nodes struct {
	options Options
	now     func() time.Time // of options
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil for one server
	single  *Node                // nil for a cluster

	watched atomic.Bool   // [Nodes.Watch] runs
	late    chan struct{} // a call waits for a node of a cluster; holds one
	layout  atomic.Pointer[layout]
	last    atomic.Pointer[Status] // what the last probe found; nil: there was none
	losses  atomic.Pointer[losses] // nil: before the first probe
	purges  sync.WaitGroup         // under way

	probing sync.Mutex          // held during a probe; guards what follows
	marks   map[string]tagState // by tag, as the last probe found them
	shown   map[string]bool     // the nodes that have metrics
	lostAt  int64               // the last loss

	mu    sync.RWMutex
	nodes map[*redis.Client]*Node // of a cluster, replicas and former masters, too, until they leave it
}

// New returns the nodes of c, a [redis.Client] or a [redis.ClusterClient], which the caller
// closes. It adds hooks to c, which see its new connections, and does not connect.
func New(c redis.UniversalClient, o Options) *Nodes {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Stamp.Value == nil {
		o.Stamp.Value = func() string { return "none" }
	}
	ns := &Nodes{
		options: o, now: o.Now, client: c, late: make(chan struct{}, 1), nodes: make(map[*redis.Client]*Node), marks: make(map[string]tagState),
	}
	// Now, so that it has all connections, such as the one over which a cluster's slots are asked for.
	switch c := c.(type) {
	case *redis.ClusterClient:
		ns.cluster = c
		c.OnNewNode(func(server *redis.Client) { ns.nodeFor(server) })
	case *redis.Client:
		ns.single = ns.nodeFor(c)
	}
	return ns
}

// IsCluster reports whether there may be several nodes.
func (ns *Nodes) IsCluster() bool { return ns.cluster != nil }

// Node is one server, and what is known of it.
type Node struct {
	client *redis.Client
	nodes  *Nodes
	addr   string // of one behind a Sentinel, "sentinel"

	seeing  sync.Mutex // held while seen is changed
	seen    atomic.Pointer[seen]
	trusted atomic.Int64  // unix nanoseconds: the stamp is trusted until then; 0: not
	knowing chan struct{} // has an element while the data are compared
	purging atomic.Bool   // by this process

	connections
}

// Of returns the node of a key: in a cluster, the master of the key's slot. It asks the
// network only where nothing is known of the cluster yet.
func (ns *Nodes) Of(ctx context.Context, key string) (*Node, error) {
	if ns.single != nil {
		return ns.single, nil
	}
	master, err := ns.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return ns.nodeFor(master), nil
}

func (ns *Nodes) nodeFor(server *redis.Client) *Node {
	ns.mu.RLock()
	n := ns.nodes[server]
	ns.mu.RUnlock()
	if n != nil {
		return n
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n := ns.nodes[server]; n != nil {
		return n
	}
	addr := server.Options().Addr
	if addr == "FailoverClient" { // as go-redis calls it
		addr = behindSentinel
	}
	n = &Node{client: server, nodes: ns, addr: addr, knowing: make(chan struct{}, 1), connections: connections{open: make(map[*connection]struct{})}}
	n.seen.Store(new(seen))
	server.AddHook(dialHook{Node: n})
	server.AddHook(slotsHook{})
	ns.nodes[server] = n
	return n
}

// behindSentinel stands for the address of a server behind a Sentinel, which another one
// may take over.
const behindSentinel = "sentinel"

// name is the address of the node; behind a Sentinel, that of the present server, if one
// was connected to.
func (n *Node) name() string {
	if n.addr != behindSentinel {
		return n.addr
	}
	n.connsMu.Lock()
	defer n.connsMu.Unlock()
	return cmp.Or(n.remote, n.addr)
}

// all returns the nodes that are known, masters or not.
func (ns *Nodes) all() []*Node {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return slices.Collect(maps.Values(ns.nodes))
}
