package index

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
)

const (
	probeEvery = time.Second // between two probes of [Index.Watch]
	probeTTL   = time.Second // of the guard of a probe that was cut short

	// refusalTTL is how long a refusal is reported. It is longer than a postponed task
	// waits until it is tried again, and longer than the time between two refusals of a
	// server that is nearly full.
	refusalTTL = 5 * time.Second
)

// refusal is the last write that Redis refused.
type refusal struct {
	err error
	at  time.Time
}

// probeScript writes what an update writes, with the same commands, and deletes it
// in the same step. Its first write needs memory, because a full server refuses no write
// after the first one of a script. What an ACL may forbid comes before the set is made,
// so that none is left behind.
//
//	KEYS[1]  a set that does not exist
//	KEYS[2]  its guard
//	ARGV[1]  the TTL of the guard in milliseconds, should the script end early
//	returns  1
var probeScript = newScript(`
redis.call('SET', KEYS[2], 'probe', 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[1], '1')
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', '-1')
redis.call('ZADD', KEYS[1], '1', '1')
return redis.call('DEL', KEYS[1], KEYS[2])
`)

// NodeStatus is what a probe found out about a node: a server, or a master of a cluster.
type NodeStatus struct {
	Node string // its address; of one behind a Sentinel that was never reached, "sentinel"
	// Err is why its sets cannot be used now, or not all of them; nil: they can. It matches
	// [ErrUnavailable], [ErrSettings], or [ErrUnknown] while they may be old; [ErrRefused]
	// where the node answers but refuses to write.
	Err error
}

// Status is what a probe found out.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the slots, and so of the sets, whose node cannot be used, 0 to 1
	err   error        // the nodes cannot be found
}

// Err returns the error that matters most: [ErrSettings], or the first of a node; nil when
// all sets can be used.
func (s Status) Err() error {
	err := s.err
	for _, n := range s.Nodes {
		if errors.Is(n.Err, ErrSettings) {
			return n.Err
		}
		err = cmp.Or(err, n.Err)
	}
	return err
}

// Probe finds out whether the sets can be read and written now. It writes a little to each
// node. For five seconds after a node refused a write its status is the refusal: see
// [Index.Refuses].
func (ix *Index) Probe(ctx context.Context) Status { return ix.probe(ctx, nil) }

// probe deletes what may be old until background ends; nil: it leaves that to others.
func (ix *Index) probe(ctx, background context.Context) (s Status) {
	c, start := ix.client, time.Now()
	defer func() { ix.observe(opProbe, start, s.Err()) }()
	c.probing.Lock()
	defer c.probing.Unlock()
	nodes, err := c.masters(ctx)
	if err != nil {
		if ctx.Err() == nil {
			slotsAway.Set(1)
		}
		return Status{Away: 1, err: translate(ctx, "find the nodes", err)}
	}
	formers := c.forget(ctx, nodes)
	probed := make([]*inspection, len(nodes))
	s.Nodes = make([]NodeStatus, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { probed[i], s.Nodes[i] = ix.probeNode(ctx, n) })
	}
	for _, n := range formers {
		group.Go(func() { c.probeFormer(ctx, n) })
	}
	group.Wait()
	inspected := c.takeTags(nodes, probed)
	c.judge(ctx, background, inspected)
	c.noteLosses(ctx)
	away := make(map[*node]bool)
	for i, n := range nodes {
		status := &s.Nodes[i]
		status.Node = n.name()
		if k := n.known.Load(); k != nil {
			status.Err = cmp.Or(status.Err, k.err)
		}
		if errors.Is(status.Err, ErrRefused) {
			n.refusal.Store(&refusal{status.Err, ix.options.Now()})
		}
		status.Err = cmp.Or(status.Err, n.refused(ix.options.Now()))
		away[n] = status.Err != nil
	}
	s.Away = c.share(ctx, away)
	c.show(s)
	return s
}

// takeTags notes what was read under the tags, and returns what was read of each node. The
// caller holds probing.
func (c *client) takeTags(nodes []*node, probed []*inspection) map[*node]*inspection {
	inspected := make(map[*node]*inspection)
	c.readTags = make(map[string]bool)
	for i, in := range probed {
		if in != nil {
			for at := range in.tags {
				t := &in.tags[at]
				before := c.marks[t.tag]
				t.rewound = t.mark <= before.mark && t.lost <= before.lost // otherwise another process noticed
				c.marks[t.tag] = *t
				c.readTags[t.tag] = true
				c.newLoss = c.newLoss || t.lost != before.lost
			}
			for _, tag := range in.failed {
				c.readTags[tag] = false
			}
			inspected[nodes[i]] = in
		}
	}
	return inspected
}

// probeFormer finds out whether a node that hung, and is no master any more, answers again.
func (c *client) probeFormer(ctx context.Context, n *node) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ping := redis.NewStatusCmd(ctx, "ping")
	c.execNewest(ctx, n, []*command{newCommand("", ping)}, true)
	n.hung.Store(isTimeout(ping.Err()))
}

// probeNode probes a node. The inspection is nil if the node does not answer.
func (ix *Index) probeNode(ctx context.Context, n *node) (in *inspection, status NodeStatus) {
	in = &inspection{dials: n.dials.Load(), epoch: n.epoch.Load()}
	tags := ix.client.tags(ctx, n)
	info := redis.NewStringCmd(ctx, "info", "server")
	commands := []*command{newCommand("", info)}
	replies, stored := make([]tagReplies, len(tags)), make([]*redis.StringCmd, len(tags))
	for i, tag := range tags {
		replies[i] = tagReplies{redis.NewIntCmd(ctx, "incr", markKeyOf(tag)), textOf(ctx, serverKey(tag)), textOf(ctx, lostKey(tag))}
		stored[i] = textOf(ctx, settingsKeyOf(tag))
		for _, cmd := range []redis.Cmder{replies[i].mark, replies[i].server, replies[i].lost, stored[i]} {
			commands = append(commands, newCommand(tag, cmd))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if in.run, status.Err = ix.client.askProbe(ctx, n, info, commands); status.Err != nil {
		return nil, status
	}
	for i, tag := range tags {
		switch state, err := replies[i].read(tag); {
		case hasMoved(err):
		case err != nil:
			in.failed = append(in.failed, tag)
			status.Err = cmp.Or(status.Err, translate(ctx, "probe", err))
		default:
			in.tags = append(in.tags, state)
		}
	}
	status.Err = cmp.Or(ix.compare(ctx, n, stored, false), status.Err)
	if len(tags) > 0 && status.Err == nil {
		// The first tag may move; the next probe has another.
		reply := ix.client.evalAll(ctx, probeScript, []call{{on: n, keys: probeKeys(tags[0]), args: []any{probeTTL.Milliseconds()}}}, nil)[0]
		if reply.err != nil && !isOfSlot(reply.err) {
			status.Err = translate(ctx, "probe", reply.err)
		}
	}
	return in, status
}

// askProbe sends the commands of a probe, and returns the run of the server. A node that does not
// answer is given up until a probe is answered: calls end, and fail at once. A node of a cluster
// is given up after half of the time, since calls wait that are for the sets of others as well,
// and then asked again: if only the machine was slow, nothing more comes of it.
func (c *client) askProbe(ctx context.Context, n *node, info *redis.StringCmd, commands []*command) (run string, err error) {
	timeouts := []time.Duration{probeTimeout}
	if c.cluster != nil && n.watched.Load() {
		timeouts = []time.Duration{probeTimeout / 2, probeTimeout}
	}
	for _, timeout := range timeouts {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		c.execNewest(bounded, n, commands, true)
		run, err = runOf(info)
		n.noteAnswer(bounded, err)
		isHung := isTimeout(err) && n.watched.Load()
		err = translate(bounded, "probe", err)
		cancel()
		if err == nil {
			n.hung.Store(false)
		}
		if !isHung {
			break
		}
		n.hang()
	}
	return run, err
}

// tagReplies are the replies to what a probe asks about a tag.
type tagReplies struct {
	mark         *redis.IntCmd
	server, lost *redis.StringCmd
}

// read returns what is stored under the tag.
func (r tagReplies) read(tag string) (tagState, error) {
	return tagState{tag: tag, mark: r.mark.Val(), server: r.server.Val(), lost: number(r.lost.Val())},
		cmp.Or(r.server.Err(), r.lost.Err(), r.mark.Err())
}

// Refuses returns why the node of the user's set refuses writes: the error of a probe that
// was refused less than five seconds ago, or of a write, if its reason holds for all sets.
// It matches [ErrRefused]; nil: nothing was refused. It relies on [Index.Watch].
func (ix *Index) Refuses(ctx context.Context, user member.ID) error {
	n, err := ix.client.nodeOf(ctx, UserKey(user))
	if err != nil {
		return nil //nolint:nilerr // that it refuses is not known
	}
	return n.refused(ix.options.Now())
}

func (n *node) refused(now time.Time) error {
	if r := n.refusal.Load(); r != nil && now.Sub(r.at) < refusalTTL {
		return r.err
	}
	return nil
}

// Watch probes every second, and when a call waits for a node of a cluster, until ctx ends, which
// is no error, so that [Index.Refuses] is up to date, the metrics say which nodes can be used,
// calls to nodes that do not answer fail at once, and sets that may be old are deleted. It
// calls report with the time at which each probe began, and what it found. Call it once.
func (ix *Index) Watch(ctx context.Context, report func(began time.Time, s Status)) error {
	defer ix.client.purges.Wait()
	ix.client.watched.Store(true)
	defer ix.client.watched.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, 2*probeTimeout) // with what comes before and after
		status := ix.probe(bounded, ctx)
		cancel()
		if ctx.Err() == nil {
			report(began, status)
		}
		select {
		case <-tick.C:
		case <-ix.client.late:
			// Where all calls are slow, as under too much load, probes are not to add to it.
			_ = retry.Sleep(ctx, lateAfter-time.Since(began)) // the loop looks at ctx
		case <-ctx.Done():
		}
	}
	return nil
}

// share returns the share of the slots that lie on some of the nodes.
func (c *client) share(ctx context.Context, some map[*node]bool) float64 {
	if c.cluster == nil {
		for _, away := range some {
			if away {
				return 1
			}
		}
		return 0
	}
	if !slices.Contains(slices.Collect(maps.Values(some)), true) {
		return 0
	}
	count := 0
	for _, key := range slotKeys() {
		if n, err := c.nodeOf(ctx, key); err != nil || some[n] {
			count++
		}
	}
	return float64(count) / slotCount
}

// show sets the metrics of the nodes, and deletes those of nodes that are none of the
// masters any more.
func (c *client) show(s Status) {
	shown := make(map[string]bool)
	for _, n := range s.Nodes {
		shown[n.Node] = true
		delete(c.shown, n.Node)
		away := errors.Is(n.Err, ErrUnavailable) && !errors.Is(n.Err, ErrRefused) || errors.Is(n.Err, context.DeadlineExceeded)
		redisUp.WithLabelValues(n.Node).Set(gauge[!away])
		redisWritable.WithLabelValues(n.Node).Set(gauge[n.Err == nil || errors.Is(n.Err, ErrUnknown)])
		redisKnown.WithLabelValues(n.Node).Set(gauge[!errors.Is(n.Err, ErrUnknown)])
	}
	for node := range c.shown {
		for _, gauges := range []*prometheus.GaugeVec{redisUp, redisWritable, redisKnown} {
			gauges.DeleteLabelValues(node)
		}
	}
	c.shown = shown
	slotsAway.Set(s.Away)
}
