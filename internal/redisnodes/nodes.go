package redisnodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say what the nodes are told of the data, of which they know nothing else.
type Options struct {
	// Name is the key, in a cluster the beginning of the keys, of what is stored beside the data.
	Name string
	// Stamp returns the settings by which the data are made, which are stored beside them, or "" while they
	// are not known: then the data cannot be used. Differ returns an [ErrStamp] for another stamp.
	Stamp  func() string
	Differ func(stored string) error
	// Script is run by a probe on each node, with ScriptArgs and the keys ScriptKeys(tag), all in one
	// slot, to find out whether all can be written that has to be. Nil: nothing is run.
	Script     *redis.Script
	ScriptKeys func(tag string) []string
	ScriptArgs []any
	// Pattern, as that of SCAN, and Owns choose the keys that are deleted when the data may be old.
	Pattern string
	Owns    func(key string) bool
	// Probed is called after each probe with its beginning and [Status.Err].
	Probed func(began time.Time, err error)
}

// Variables, because tests set longer ones: their machine may be busy.
var (
	// CallTimeout is how long a pipeline may take. It bounds for how long a node that hangs holds up
	// the callers, and is longer than a read waits for Redis.
	CallTimeout = 400 * time.Millisecond
	// ProbeTimeout is how long a probe may wait for one reply of a node.
	ProbeTimeout = time.Second
)

// Nodes are one Redis server or the masters of a cluster. One server, also one behind a Sentinel,
// is one node. Its methods are safe for concurrent use.
type Nodes struct {
	options Options
	given   *redis.Options                // of one server
	server  atomic.Pointer[redis.Client]  // for its data
	cluster *redis.ClusterClient          // for the data of a cluster; nil for one server
	plain   *redis.Options                // of clients whose connections are not looked at
	seeds   []string                      // the addresses by which the cluster is found
	layout  atomic.Pointer[map[*Node]int] // the masters, and how many slots each has

	watched atomic.Bool   // [Nodes.Watch] runs
	kicked  chan struct{} // asks Watch for a probe now; holds one
	last    atomic.Pointer[Status]
	lostAt  atomic.Int64

	probing sync.Mutex      // held during a probe; guards what follows
	shown   map[string]bool // the nodes that have metrics

	mu    sync.Mutex
	nodes map[string]*Node // by address; former masters, too
}

// Open returns the nodes that c leads to, a [redis.Client] or a [redis.ClusterClient]. It makes
// clients of its own with the options of c, which stays as it is, and does not connect.
func Open(c redis.UniversalClient, o Options) *Nodes {
	ns := &Nodes{options: o, kicked: make(chan struct{}, 1), nodes: make(map[string]*Node)}
	switch c := c.(type) {
	case *redis.ClusterClient:
		ns.openCluster(c.Options())
	case *redis.Client:
		ns.given, ns.plain = c.Options(), plainOptions(*c.Options())
		ns.layout.Store(&map[*Node]int{ns.node(ns.given.Addr): 1})
		ns.server.Store(ns.open(*ns.given))
	}
	return ns
}

// plainOptions returns options of a client whose connections are not looked at.
func plainOptions(o redis.Options) *redis.Options {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DisableIdentity = true, -1, true
	o.PoolSize, o.MinIdleConns, o.PipelinePoolSize = 2, 0, -1
	o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// open returns a client for the data of the node at an address.
func (ns *Nodes) open(o redis.Options) *redis.Client {
	n, p := ns.node(o.Addr), plainOptions(o)
	p.PoolSize, p.DisableIdentity = o.PoolSize, o.DisableIdentity
	p.MaxRetries = 1 // for the connections that a restarted server has left in the pool
	p.DialTimeout, p.ReadTimeout, p.WriteTimeout, p.PoolTimeout = CallTimeout, CallTimeout, CallTimeout, CallTimeout
	p.MinRetryBackoff, p.MaxRetryBackoff = -1, -1
	p.OnConnect, p.Limiter = n.accept, n
	return redis.NewClient(p)
}

// client returns the client for the data.
func (ns *Nodes) client() redis.UniversalClient {
	if ns.cluster != nil {
		return ns.cluster
	}
	return ns.server.Load()
}

// IsCluster reports whether there may be several nodes.
func (ns *Nodes) IsCluster() bool { return ns.cluster != nil }

// Close closes the connections. [Nodes.Watch] has to end first.
func (ns *Nodes) Close() error { return ns.client().Close() }

// AddHook adds a hook to the client for the data, until the one server is another one. Only tests use it.
func (ns *Nodes) AddHook(h redis.Hook) { ns.client().AddHook(h) }

// Node is one server, and what is known of it. It is a [redis.Limiter] of the client for its data.
type Node struct {
	ns       *Nodes
	addr     string
	run      atomic.Pointer[string] // of the server that the last probe believed; "": none; nil: there was no probe
	token    int64                  // the latest that was seen or stored; guarded by probing
	believed int64                  // the token beside the data that the last probe believed; likewise
	emptied  string                 // the run whose data this process deleted last; likewise
	led      string                 // the run to which the connections of one server lead; likewise
	timeouts atomic.Int32           // in a row
	purging  atomic.Bool            // by this process
	seeing   sync.Mutex             // held while seen is changed
	seen     atomic.Pointer[seen]
}

// node returns the node at an address.
func (ns *Nodes) node(addr string) *Node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.nodes[addr]
	if n == nil {
		n = &Node{ns: ns, addr: addr}
		n.seen.Store(new(seen))
		ns.nodes[addr] = n
	}
	return n
}

// all returns the nodes that are known, masters or not.
func (ns *Nodes) all() []*Node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return slices.Collect(maps.Values(ns.nodes))
}

// plainClient returns a client of the node whose connections are not looked at. The caller closes it.
func (n *Node) plainClient(timeout time.Duration) *redis.Client {
	o := *n.ns.plain
	o.Addr = n.addr
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	return redis.NewClient(&o)
}

// name is the address of the node, as people know it.
func (n *Node) name() string {
	if n.addr == "FailoverClient" { // as go-redis calls it
		return "sentinel"
	}
	return n.addr
}

// at returns the node of a key, nil if none is known.
func (ns *Nodes) at(ctx context.Context, key string) *Node {
	if ns.cluster == nil {
		return ns.node(ns.given.Addr)
	}
	if master, err := ns.cluster.MasterForKey(ctx, key); err == nil {
		return ns.node(master.Options().Addr)
	}
	return nil
}

// Usable returns the state of the node of a key, with its address, and why it is neither usable nor behind: the one
// answer to whether the data of the key can be used now. It sends nothing where [Nodes.Watch] runs.
func (ns *Nodes) Usable(ctx context.Context, key string) (node string, state State, err error) {
	if !ns.watched.Load() {
		ns.Status(ctx)
	}
	n := ns.at(ctx, key)
	if n == nil {
		return "", Away, errNoNode
	}
	state, err = n.seen.Load().state(time.Now())
	return n.addr, state, err
}

// maxTimeouts in a row show that a node hangs.
const maxTimeouts = 2

// Allow implements [redis.Limiter]: calls to a node that hangs fail at once.
func (n *Node) Allow() error {
	if time.Now().Before(n.seen.Load().hung) {
		return errHangs
	}
	return nil
}

// ReportResult implements [redis.Limiter]. A call that had less time than others counts as well: the probe
// that follows at once finds a node that answers.
func (n *Node) ReportResult(err error) {
	switch {
	case errors.Is(err, context.Canceled): // it says nothing of the node
		return
	case err == nil || !isTimeout(err):
		n.timeouts.Store(0)
		return
	}
	if n.timeouts.Add(1) == maxTimeouts {
		n.see(func(s *seen) { s.hung = time.Now().Add(seenFor()) })
	}
	n.ns.kick()
}

// isOld reports whether an error says that data may be old.
func isOld(err error) bool { return errors.Is(err, ErrUnknown) }
