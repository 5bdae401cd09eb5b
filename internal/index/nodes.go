package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
)

// client sends commands to one Redis server or to the masters of a cluster, and hides the
// difference. One server, also one behind a Sentinel, is one node.
type client struct {
	redis.UniversalClient

	cluster *redis.ClusterClient // nil for one server
	now     func() time.Time

	watched atomic.Bool   // [Index.Watch] runs
	late    chan struct{} // a call waits for a node of a cluster; holds one
	layout  atomic.Pointer[layout]
	purges  sync.WaitGroup      // under way
	probing sync.Mutex          // held during a probe
	marks   map[string]tagState // by tag, as the last probe found them; guarded by probing
	shown   map[string]bool     // the nodes that have metrics; guarded by probing
	lostAt  int64               // the last loss; guarded by probing

	losses   atomic.Pointer[losses] // nil: before the first probe
	readTags map[string]bool        // those that the last probe asked for: whether it read them; guarded by probing
	newLoss  bool                   // a tag has another loss than losses knows; guarded by probing

	mu    sync.RWMutex
	nodes map[*redis.Client]*node // of a cluster, replicas and former masters, too, until they leave it
}

// newClient adds hooks to c, which see its new connections.
func newClient(c redis.UniversalClient, now func() time.Time) *client {
	cluster, _ := c.(*redis.ClusterClient)
	made := &client{UniversalClient: c, cluster: cluster, now: now, late: make(chan struct{}, 1), nodes: make(map[*redis.Client]*node), marks: make(map[string]tagState)}
	// Now, so that it has all connections, such as the one over which a cluster's slots are asked for.
	if cluster != nil {
		cluster.OnNewNode(func(server *redis.Client) { made.nodeFor(server) })
	} else if single, ok := c.(*redis.Client); ok {
		made.nodeFor(single)
	}
	return made
}

// node is one server, and what is known of it.
type node struct {
	*redis.Client

	addr     string                 // of one behind a Sentinel, "sentinel"
	sentinel atomic.Pointer[string] // the address of such a one, when it was connected to last
	now      func() time.Time
	// dials counts the connections over which it has answered. What is known of its data, such as
	// that it is the data that was there before, is known up to a number of them: only over a
	// new connection can another server answer, or the same one after a restart.
	dials atomic.Int64
	epoch atomic.Int64 // is raised where what was read before is not to be believed any more

	watched      *atomic.Bool // of its client
	hung         atomic.Bool  // the last probe of Watch was not answered: calls fail at once, and only probes connect
	downUntil    atomic.Int64 // unix nanoseconds: without Watch, calls fail at once until then
	trustedUntil atomic.Int64 // unix nanoseconds: the settings are trusted until then; 0: not
	refusal      atomic.Pointer[refusal]
	known        atomic.Pointer[knowledge]
	knowing      chan struct{} // has an element while known is found out
	purging      atomic.Bool   // by this process

	connsMu sync.Mutex             // held when epoch is raised, too
	conns   map[io.Closer]struct{} // that are open, or being made
}

// nodeOf returns the node of a key: in a cluster, the master of the key's slot. It asks
// the network only where nothing is known of the cluster yet.
func (c *client) nodeOf(ctx context.Context, key string) (*node, error) {
	if c.cluster == nil {
		single, _ := c.UniversalClient.(*redis.Client) // there is no third kind
		return c.nodeFor(single), nil
	}
	master, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.nodeFor(master), nil
}

func (c *client) nodeFor(server *redis.Client) *node {
	c.mu.RLock()
	n := c.nodes[server]
	c.mu.RUnlock()
	if n != nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[server]; n != nil {
		return n
	}
	addr := server.Options().Addr
	if addr == "FailoverClient" { // as go-redis calls it
		addr = behindSentinel
	}
	n = &node{Client: server, addr: addr, now: c.now, watched: &c.watched, conns: make(map[io.Closer]struct{}), knowing: make(chan struct{}, 1)}
	server.AddHook(dialHook{node: n})
	server.AddHook(slotsHook{})
	c.nodes[server] = n
	return n
}

// behindSentinel stands for the address of a server behind a Sentinel, which another one
// may take over.
const behindSentinel = "sentinel"

// name is the address of the node; behind a Sentinel, that of the present server, if one
// was connected to.
func (n *node) name() string {
	if addr := n.sentinel.Load(); addr != nil {
		return *addr
	}
	return n.addr
}

// dialHook counts the connections to a node, and tracks them, so that [node.hang] and
// [client.noteRun] can close them.
type dialHook struct {
	*node

	uncounted bool // of [client.execNewest]
	probes    bool // it may connect to a node that hangs
}

// DialHook implements [redis.Hook].
func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		for {
			if conn, err := h.dial(ctx, next, network, addr); !errors.Is(err, errClosed) {
				return conn, err
			}
		}
	}
}

// errClosed is the error of a connection that [node.closeConns] closed while it was made, or
// whose epoch ended by then.
var errClosed = errors.New("closed while it was made")

// making is a connection that is being made.
type making struct{ cancel context.CancelCauseFunc }

// Close implements [io.Closer].
func (m *making) Close() error {
	m.cancel(errClosed)
	return nil
}

// dial makes a connection that [node.hang] and [client.noteRun] close. To a node that hangs only
// probes make one: a connection is either closed by hang, or begun after it and refused.
func (h dialHook) dial(ctx context.Context, next redis.DialHook, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &making{cancel}
	h.connsMu.Lock()
	if h.hung.Load() && !h.probes {
		h.connsMu.Unlock()
		return nil, errDown
	}
	h.conns[m] = struct{}{}
	epoch := h.epoch.Load()
	h.connsMu.Unlock()
	conn, err := next(ctx, network, addr)
	h.connsMu.Lock()
	defer h.connsMu.Unlock()
	delete(h.conns, m)
	isClosed := errors.Is(context.Cause(ctx), errClosed) || epoch != h.epoch.Load()
	switch {
	case isClosed && err == nil:
		_ = conn.Close() // nothing was sent over it
		return nil, errClosed
	case isClosed:
		return nil, errClosed
	case err != nil:
		return nil, err
	}
	return h.keep(conn), nil
}

// keep returns conn as one that is tracked. The caller holds connsMu.
func (h dialHook) keep(conn net.Conn) net.Conn {
	h.conns[conn] = struct{}{}
	if h.addr == behindSentinel {
		addr := conn.RemoteAddr().String()
		h.sentinel.Store(&addr)
	}
	kept := keptConn{conn, h.node, new(atomic.Bool)}
	kept.counted.Store(h.uncounted)
	if raw, ok := conn.(syscall.Conn); ok { // go-redis asks it whether the other end has closed it
		return rawConn{kept, raw}
	}
	return kept
}

// keptConn is a connection to a node.
type keptConn struct {
	net.Conn

	node    *node
	counted *atomic.Bool // in dials of the node, or it need not be
}

// Read implements [net.Conn].
func (c keptConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.counted.Load() && c.counted.CompareAndSwap(false, true) {
		c.node.dials.Add(1) // before the first reply is seen
	}
	return n, err
}

// rawConn is a keptConn that is a [syscall.Conn].
type rawConn struct {
	keptConn
	syscall.Conn
}

// Close implements [net.Conn].
func (c keptConn) Close() error {
	c.node.connsMu.Lock()
	delete(c.node.conns, c.Conn)
	c.node.connsMu.Unlock()
	return c.Conn.Close()
}

// hang notes that the node did not answer a probe. It closes its connections, so that
// calls under way, which may be for the sets of other nodes as well, end now, and not
// after their own timeouts.
//
// What was sent by then the node may still do when it goes on, as after any timeout, however
// late: an Apply only while the guard holds its token, so at most once and never after another
// one was applied; an Add only raises; a Begin leaves a guard that expires, or one that the next Begin
// shares.
func (n *node) hang() {
	n.hung.Store(true)
	n.connsMu.Lock()
	defer n.connsMu.Unlock()
	n.closeConns()
}

// beginEpoch begins an epoch: what was read before is not believed any more. If closing, it
// closes all connections first; those that are being made are made again in any case.
func (n *node) beginEpoch(closing bool) {
	n.connsMu.Lock()
	defer n.connsMu.Unlock()
	if closing {
		n.closeConns()
	}
	n.epoch.Add(1)
}

// closeConns closes all connections. The caller holds connsMu.
func (n *node) closeConns() {
	for conn := range n.conns {
		_ = conn.Close() // its user sees it
	}
}

// ProcessHook implements [redis.Hook].
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// tagCount is how many keys of a kind a cluster has, in slots that are evenly spread: a
// node with 128 slots or more in a row has some of them.
const tagCount = 128

// layout says which slots are on which nodes, at a time.
type layout struct {
	at   time.Time
	tags map[*node][]string
}

// layoutFor is how long a layout is used.
const layoutFor = time.Second

// tags returns what ends the keys that lie on the node beside the sets, in the order of
// their slots: "" for one server. A node with so few slots that none of the tags of the
// cluster lies in them has one for its first slot. A node without slots has none.
func (c *client) tags(ctx context.Context, n *node) []string {
	if c.cluster == nil {
		return []string{""}
	}
	l := c.layout.Load()
	if l == nil || c.now().Sub(l.at) > layoutFor || l.tags[n] == nil {
		l = c.lay(ctx)
		c.layout.Store(l)
	}
	return l.tags[n]
}

// lay makes a layout.
func (c *client) lay(ctx context.Context) *layout {
	l := &layout{at: c.now(), tags: make(map[*node][]string)}
	first := make(map[*node]string)
	for slot, key := range slotKeys() {
		n, err := c.nodeOf(ctx, key)
		switch {
		case err != nil:
		case slot%(slotCount/tagCount) == 0:
			l.tags[n] = append(l.tags[n], key)
		case first[n] == "":
			first[n] = key
		}
	}
	for n, key := range first {
		if len(l.tags[n]) == 0 {
			l.tags[n] = []string{key}
		}
	}
	return l
}

// allTags returns the tags of a cluster.
var allTags = sync.OnceValue(func() []string {
	tags := make([]string, tagCount)
	for i := range tags {
		tags[i] = slotKeys()[i*slotCount/tagCount]
	}
	return tags
})

// slots returns the slots of the node.
func (c *client) slots(ctx context.Context, n *node) Slots {
	if c.cluster == nil {
		return AllSlots()
	}
	var list []int
	for slot, key := range slotKeys() {
		if on, err := c.nodeOf(ctx, key); err == nil && on == n {
			list = append(list, slot)
		}
	}
	return slotsOf(list)
}

// command is a command and the key whose node it goes to. It has its own error after it
// was sent.
type command struct {
	redis.Cmder

	key string
	to  *node // the only one that it is sent to; nil: that of its key
	on  *node // that it was sent to last; nil: none

	epoch int64 // of that node, before it was sent
}

func newCommand(key string, cmd redis.Cmder) *command { return &command{Cmder: cmd, key: key} }

const (
	// pipelineSize bounds the commands in one pipeline, so that one large batch
	// neither fills the server's buffers nor delays other clients for long.
	pipelineSize = 1000
	// findAgainTimeout is findTimeout where the servers have said so before: what they said
	// then is used.
	findAgainTimeout = 300 * time.Millisecond
	// lateAfter is how long a call waits for the nodes of a cluster before [Index.Watch] looks at
	// them. It is a little shorter than a read waits before it goes on without the index.
	lateAfter = 200 * time.Millisecond
	// downFor is how long calls to a node that does not answer fail at once, before one of
	// them tries again.
	downFor = time.Second
)

// Variables, because tests set longer ones: their machine may be busy.
var (
	// repeatFor is how long commands are repeated that come to a slot that is moving, or to
	// a server that is no master any more. It bounds how long they hold up the others of
	// their batch.
	repeatFor = 500 * time.Millisecond
	// findTimeout is how long the servers of a cluster may take to say which slots are where.
	findTimeout = time.Second
	// probeTimeout is how long a probe of one node may take.
	probeTimeout = 2 * time.Second
)

// send sends the commands, pipelined, to their nodes side by side. Commands to a node that
// cannot be used do not hold up the others, but for the time that it takes to find out.
func (c *client) send(ctx context.Context, commands []*command) {
	began := time.Now()
	for try := 1; ; try++ {
		c.sendOnce(ctx, commands)
		commands = slices.DeleteFunc(slices.Clone(commands), func(cmd *command) bool {
			return cmd.to != nil || !isMoving(cmd.Err())
		})
		if len(commands) == 0 || c.cluster == nil || time.Since(began) >= repeatFor {
			return
		}
		_, _ = c.masters(ctx) // reads the cluster's slots again; without them, the next try fails as well
		if try > 1 && retry.Sleep(ctx, retry.Jitter(min(time.Duration(try)*5*time.Millisecond, 50*time.Millisecond))) != nil {
			return
		}
	}
}

// sendOnce sends the commands once, and once more those that a node said are elsewhere
// for now.
func (c *client) sendOnce(ctx context.Context, commands []*command) {
	if c.cluster == nil {
		n, _ := c.nodeOf(ctx, "") // of one server there is one
		c.sendTo(ctx, n, commands, false)
		return
	}
	defer time.AfterFunc(lateAfter, c.look).Stop()
	var nodes sync.WaitGroup
	defer nodes.Wait()
	groups := make(map[*node][]*command)
	for _, cmd := range commands {
		n, err := cmd.to, error(nil)
		if n == nil {
			n, err = c.nodeOf(ctx, cmd.key)
		}
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		groups[n] = append(groups[n], cmd)
	}
	for n, group := range groups {
		nodes.Go(func() {
			c.sendTo(ctx, n, group, false)
			c.ask(ctx, group)
			if err := group[0].Err(); err != nil && isUnreachable(err) {
				c.cluster.ReloadState(ctx) // in the background, for later calls: another master may be in its place
			}
		})
	}
}

// look makes [Index.Watch] probe now, as a call waits for a node, and with it all that it is
// for: the probe gives up a node that does not answer.
func (c *client) look() {
	select {
	case c.late <- struct{}{}:
	default: // it will
	}
}

// ask sends the commands to the nodes that the error replies ASK name: those to which the
// slot is being moved.
func (c *client) ask(ctx context.Context, commands []*command) {
	elsewhere := make(map[string][]*command)
	for _, cmd := range commands {
		if cmd.to == nil && redis.HasErrorPrefix(cmd.Err(), "ASK ") { // ASK 3999 127.0.0.1:6381
			addr := cmd.Err().Error()
			addr = addr[strings.LastIndexByte(addr, ' ')+1:]
			elsewhere[addr] = append(elsewhere[addr], cmd)
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	masters, _ := c.masters(ctx) // without them, all are sent by the client
	for addr, some := range elsewhere {
		at := slices.IndexFunc(masters, func(n *node) bool { return n.addr == addr })
		if at >= 0 {
			c.sendTo(ctx, masters[at], some, true)
			continue
		}
		// A node that has no slot yet gets its first one. What lies there comes from the node
		// that was asked first, and what is known of that holds of it.
		pipe := c.cluster.Pipeline()
		for _, cmd := range some {
			cmd.SetErr(nil)
			_ = pipe.Process(ctx, cmd.Cmder) // it is queued
		}
		exec(ctx, pipe)
	}
}

// sendTo sends the commands to the node, after it is known, so that the replies need not be
// left because it was not.
func (c *client) sendTo(ctx context.Context, n *node, commands []*command, asking bool) {
	if n.known.Load() == nil {
		_ = c.knows(ctx, n) // else after the replies
	}
	n.send(ctx, commands, asking)
}

// send sends the commands to the node, pipelined, each after ASKING if asking; or to none
// while the node is down.
func (n *node) send(ctx context.Context, commands []*command, asking bool) {
	for some := range slices.Chunk(commands, pipelineSize) {
		if err := n.down(); err != nil {
			for _, cmd := range some {
				cmd.on = n
				cmd.SetErr(err)
			}
			continue
		}
		n.exec(ctx, n.Client, some, asking)
		n.noteAnswer(ctx, some[0].Err())
	}
}

// exec sends the commands to the node in one pipeline, by a client of it.
func (n *node) exec(ctx context.Context, by *redis.Client, commands []*command, asking bool) {
	pipe, epoch := by.Pipeline(), n.epoch.Load()
	for _, cmd := range commands {
		cmd.on, cmd.epoch = n, epoch
		cmd.SetErr(nil)
		if asking {
			pipe.Do(ctx, "asking")
		}
		_ = pipe.Process(ctx, cmd.Cmder) // it is queued
	}
	exec(ctx, pipe)
	for _, cmd := range commands {
		// One by an ACL may be about a single key: the probe finds out whether it is
		// about all.
		if _, refused := redisreply.Passing(cmd.Err()); refused && !redisreply.Denied(cmd.Err()) {
			n.refusal.Store(&refusal{translate(ctx, "write", cmd.Err()), n.now()})
		}
	}
}

// execNewest sends the commands to the node. In a cluster an address is that of one server.
// That of a single one may come to lead to another, so they go over a connection of their own,
// newer than all that were made up to now; dials does not count it. So do those of a probe of a
// node that hangs, to which no other connection is made.
func (c *client) execNewest(ctx context.Context, n *node, commands []*command, probes bool) {
	newest := n.Client
	if c.cluster == nil || probes && n.hung.Load() {
		o := *n.Options()
		o.PoolSize = 2 // with 1, an error would begin attempts in the background
		o.MinIdleConns, o.PipelinePoolSize, o.MaxRetries, o.DisableIdentity = 0, -1, -1, true
		// Its handlers are not those of the node's client.
		o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		newest = redis.NewClient(&o)
		newest.AddHook(dialHook{node: n, uncounted: true, probes: probes})
		defer newest.Close() //nolint:errcheck // nothing depends on it
	}
	for some := range slices.Chunk(commands, pipelineSize) {
		n.exec(ctx, newest, some, false)
	}
}

// errDown is the error of calls to a node that did not answer a moment ago.
var errDown = fmt.Errorf("%w: it did not answer a moment ago", ErrUnavailable)

// down returns an error while the node is known not to answer. The probes of Watch find
// that out, and when it does again. Without Watch, calls find out: when it is some time ago,
// one of them tries.
func (n *node) down() error {
	until := n.downUntil.Load()
	switch {
	case n.hung.Load():
		return errDown
	case until == 0 || n.watched.Load():
		return nil
	}
	now := n.now()
	if now.UnixNano() >= until && n.downUntil.CompareAndSwap(until, now.Add(downFor).UnixNano()) {
		return nil
	}
	return errDown
}

// noteAnswer takes note of how a call ended. Only a node that does not answer in time is
// down: that a connection is refused is found out at no cost. A call that had less time
// than others says nothing about the node.
func (n *node) noteAnswer(ctx context.Context, err error) {
	if n.watched.Load() || errors.Is(err, redis.ErrPoolTimeout) {
		return
	}
	deadline, hurried := ctx.Deadline()
	hurried = hurried && !time.Now().Before(deadline) || ctx.Err() != nil
	switch isTimeout := isTimeout(err); {
	case isTimeout && !hurried:
		n.downUntil.Store(n.now().Add(downFor).UnixNano())
	case !isTimeout:
		n.downUntil.Store(0)
	}
}

// isUnreachable reports whether an error is none that a server sent.
func isUnreachable(err error) bool {
	var reply redis.Error
	return !errors.As(err, &reply)
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// isMoving reports whether an error says that a slot is being moved, or that the server
// is no master any more: that passes within moments.
func isMoving(err error) bool {
	return hasMoved(err) || redis.HasErrorPrefix(err, "TRYAGAIN ") || redis.HasErrorPrefix(err, "READONLY ")
}

// hasMoved reports whether an error says that a key belongs to another node.
func hasMoved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ")
}

// isOfSlot reports whether an error is about one slot, and says nothing about others of
// the node.
func isOfSlot(err error) bool {
	return isMoving(err) && !redis.HasErrorPrefix(err, "READONLY ") || redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot not served")
}

// script is a script and its text.
type script struct {
	*redis.Script

	text string
}

func newScript(text string) *script { return &script{redis.NewScript(text), text} }

// call is one run of a script.
type call struct {
	on   *node    // nil: that of its keys
	keys []string // in one slot, if there is a cluster; there may be none if on is set
	args []any
}

// command returns the call as a command: EVALSHA with the hash of the script, or EVAL with
// its text.
func (c call) command(ctx context.Context, name, script string) (*command, *redis.Cmd) {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, name, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	key := ""
	if len(c.keys) > 0 {
		key = c.keys[0]
	}
	return &command{Cmder: cmd, key: key, to: c.on}, cmd
}

// reply is what one call returned: a value, or an error of this call alone.
type reply struct {
	value any
	err   error
}

// evalAll runs a script once for every call, and returns the replies in the order of calls.
// It sends more after those of the same node; nil: nothing.
func (c *client) evalAll(ctx context.Context, s *script, calls []call, more []*command) []reply {
	commands, cmds := make([]*command, len(calls), len(calls)+len(more)), make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		commands[i], cmds[i] = call.command(ctx, "evalsha", s.Hash())
	}
	c.send(ctx, append(commands, more...))
	var unknown []*command // to their servers
	for i, call := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			again, reply := call.command(ctx, "eval", s.text)
			cmds[i], unknown = reply, append(unknown, again)
		}
	}
	if len(unknown) > 0 {
		c.send(ctx, append(unknown, more...))
	}
	replies := make([]reply, len(calls))
	for i, cmd := range cmds {
		replies[i].value, replies[i].err = cmd.Result()
	}
	return replies
}

// exec sends a pipeline; each command has its own error. Where the client got no
// connection, as with a wrong password, it returns the error here alone and leaves the
// commands as if they had succeeded and found nothing: exec gives all of them the error.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// maxTextBytes is how much is read of a string. What activityd writes is shorter; what
// another program wrote in its place may be of any size, and errors quote it.
const maxTextBytes = 100

// textOf reads a string; "" when there is none.
func textOf(ctx context.Context, key string) *redis.StringCmd {
	return redis.NewStringCmd(ctx, "getrange", key, 0, maxTextBytes-1)
}

// getText reads a string; "" when there is none.
func getText(ctx context.Context, c redis.Cmdable, key string) *redis.StringCmd {
	return c.GetRange(ctx, key, 0, maxTextBytes-1)
}
