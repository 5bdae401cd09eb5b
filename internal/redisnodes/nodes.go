package redisnodes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options describe the data.
type Options struct {
	// Name is the key of the record beside the data; in a cluster the beginning of its keys.
	Name string
	// Stamp returns the settings by which the data are made, for the record, or "" while they
	// are not known: then the data cannot be used. Differ returns an [ErrStamp] for another stamp.
	Stamp  func() string
	Differ func(stored string) error
	// Try tries on a node all kinds of writes, with keys that end with tag, all in one slot.
	Try func(ctx context.Context, c redis.Scripter, tag string) error
	// Pattern, as that of SCAN, and Owns choose the keys of the data, to delete them when they may be old.
	Pattern string
	Owns    func(key string) bool
}

// Variables, because tests set longer ones: their machine may be busy.
var (
	// CallTimeout is how long a pipeline may take: a node that hangs holds up its callers for so long.
	CallTimeout = 400 * time.Millisecond
	// ProbeTimeout is how long a probe may wait for a reply of a node.
	ProbeTimeout = time.Second
)

// Nodes are a Redis server or the masters of a cluster. A server, also behind a Sentinel,
// is a single node. Its methods are safe for concurrent use.
type Nodes struct {
	options Options
	given   redis.UniversalClient                 // for its options
	data    atomic.Pointer[redis.UniversalClient] // the client whose connections are looked at
	nodes   sync.Map                              // of *Node by address; former masters and replicas, too
	one     *Node                                 // the server; nil: a cluster

	last    atomic.Pointer[Status]
	lostAt  atomic.Int64
	asking  sync.Mutex // held by Status while it probes
	probing sync.Mutex // held during a probe
}

// Open returns the nodes that c leads to, a [redis.Client] or a [redis.ClusterClient]. It makes
// clients of its own with the options of c, which stays as it is, and does not connect.
func Open(c redis.UniversalClient, o Options) *Nodes {
	ns := &Nodes{options: o, given: c}
	if c, ok := c.(*redis.Client); ok {
		ns.one = ns.node(c.Options())
	}
	ns.data.Store(ns.open())
	return ns
}

// open returns a client for the data. It finds a cluster by its last masters, too: the given addresses may be those of
// nodes that are away. A node that left long ago may serve another cluster.
func (ns *Nodes) open() *redis.UniversalClient {
	var opened redis.UniversalClient
	switch c := ns.given.(type) {
	case *redis.Client:
		opened = ns.openNode(c.Options())
	case *redis.ClusterClient:
		o := *c.Options()
		o.Addrs = slices.Clone(o.Addrs)
		if last := ns.last.Load(); last != nil { // not all that were ever seen
			for _, n := range last.Nodes {
				o.Addrs = append(o.Addrs, n.Node)
			}
		}
		o.NewClient = ns.openNode
		o.DisableRoutingPolicies = true // they ask any node for its commands first, even a node that hangs
		o.MaxRedirects, o.MinRetryBackoff, o.MaxRetryBackoff = 5, 5*time.Millisecond, 50*time.Millisecond
		o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, noNotifications
		opened = redis.NewClusterClient(&o)
	}
	return &opened
}

// openNode returns a client for the data of the node at an address.
func (ns *Nodes) openNode(o *redis.Options) *redis.Client {
	n := ns.node(o)
	p := n.plain
	p.PoolSize, p.DisableIdentity = o.PoolSize, o.DisableIdentity
	p.MaxRetries = 1 // for the connections that a restarted server has left in the pool
	p.DialTimeout, p.ReadTimeout, p.WriteTimeout, p.PoolTimeout = CallTimeout, CallTimeout, CallTimeout, CallTimeout
	p.MinRetryBackoff, p.MaxRetryBackoff = -1, -1
	p.OnConnect, p.Limiter = n.accept, n
	c := redis.NewClient(&p)
	if ns.one == nil {
		c.AddHook(slotsHook{n})
	}
	return c
}

// slotsHook asks the node of a cluster for its slots over a connection that is not looked at: nothing can be believed before
// the nodes are known. A node that hangs is not asked.
type slotsHook struct{ n *Node }

func (slotsHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (slotsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h slotsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "cluster" {
			return next(ctx, cmd)
		}
		err := h.n.Allow()
		if err == nil {
			return h.n.with(CallTimeout, func(c *redis.Client) error { return c.Process(ctx, cmd) })
		}
		cmd.SetErr(err)
		return err
	}
}

// client returns the client for the data.
func (ns *Nodes) client() redis.UniversalClient { return *ns.data.Load() }

// reopen replaces the client, whose connections may lead to a former server. Calls that are under way go on.
func (ns *Nodes) reopen() {
	former := *ns.data.Swap(ns.open())
	time.AfterFunc(2*CallTimeout, func() { _ = former.Close() })
}

// IsCluster reports whether there may be several nodes.
func (ns *Nodes) IsCluster() bool { return ns.one == nil }

// Close closes the connections. [Nodes.Watch] has to end first.
func (ns *Nodes) Close() error { return ns.client().Close() }

// AddHook adds a hook to the client for the data, until an address leads to another server. Only tests use it.
func (ns *Nodes) AddHook(h redis.Hook) { ns.client().AddHook(h) }

// Node is a server, and all that is known of it. It is a [redis.Limiter] of the client for its data.
type Node struct {
	ns       *Nodes
	addr     string
	plain    redis.Options          // of clients whose connections are not looked at
	belief   atomic.Pointer[belief] // nil: no server was believed here
	record   string                 // the last that was believed; guarded by probing
	timeouts atomic.Int32           // in a row
	seen     atomic.Pointer[seen]   // written while probing is held
}

var noNotifications = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// node returns the node at the address of a client's options.
func (ns *Nodes) node(o *redis.Options) *Node {
	if n, ok := ns.nodes.Load(o.Addr); ok {
		return n.(*Node) //nolint:forcetypeassert // nodes has no other values
	}
	n := &Node{ns: ns, addr: o.Addr, plain: *o}
	p := &n.plain
	p.ContextTimeoutEnabled, p.MaxRetries, p.DialerRetries, p.DisableIdentity = true, -1, 1, true
	p.PoolSize, p.MinIdleConns, p.PipelinePoolSize = 2, 0, -1
	p.Protocol = 2 // by RESP3 the client looks for pushed messages around each command
	p.PushNotificationProcessor, p.MaintNotificationsConfig = nil, noNotifications
	n.seen.Store(new(seen))
	stored, _ := ns.nodes.LoadOrStore(o.Addr, n)
	return stored.(*Node) //nolint:forcetypeassert // likewise
}

// with calls do with a client of the node whose connections are new, and not looked at. It closes the client afterwards.
func (n *Node) with(timeout time.Duration, do func(c *redis.Client) error) error {
	o := n.plain
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	c := redis.NewClient(&o)
	defer c.Close() //nolint:errcheck // nothing depends on it
	return do(c)
}

// String is the address of the node, as people know it; "" of nil.
func (n *Node) String() string {
	switch {
	case n == nil:
		return ""
	case n.addr == "FailoverClient": // as go-redis calls it
		return "sentinel"
	}
	return n.addr
}

// cluster returns the client for the data of a cluster.
func (ns *Nodes) cluster() *redis.ClusterClient {
	return ns.client().(*redis.ClusterClient) //nolint:forcetypeassert // where there is no single node
}

// masters returns the nodes that have slots, in the order of their addresses: the server, or the present masters of the
// cluster. If it does not answer they are the former masters.
func (ns *Nodes) masters(ctx context.Context) (found []*Node, err error) {
	if ns.one != nil {
		return []*Node{ns.one}, nil
	}
	var mu sync.Mutex
	err = ns.cluster().ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, ns.node(c.Options()))
		return nil
	})
	if len(found) == 0 {
		err = cmp.Or(err, errNoNode)
	}
	slices.SortFunc(found, func(a, b *Node) int { return strings.Compare(a.addr, b.addr) })
	return found, err
}

// Usable returns the node of a key, and why its data cannot be used now, or not as usual ([ErrBehind]): the only answer to
// that. It sends nothing where [Nodes.Watch] runs.
func (ns *Nodes) Usable(ctx context.Context, key string) (*Node, error) {
	ns.Status(ctx)
	n := ns.one
	if n == nil {
		master, err := ns.cluster().MasterForKey(ctx, key)
		if err != nil {
			return nil, errNoNode
		}
		n = ns.node(master.Options())
	}
	return n, n.state()
}
