package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/activityd/activityd/internal/retry"
)

const probeEvery = time.Second // between two probes of [Nodes.Watch]

// NodeStatus is what is known of a node: a server, or a master of a cluster.
type NodeStatus struct {
	Node  string // its address; of one behind a Sentinel that was never reached, "sentinel"
	State State
	// Err is why it is neither [Usable] nor [Behind]. It matches [ErrUnavailable], [ErrStamp] or
	// [ErrUnknown]; [ErrRefused] where the node answers but refuses to write.
	Err error
}

// Status is what a probe found out.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the slots whose node is neither [Usable] nor [Behind], 0 to 1

	err error // the nodes cannot be found
	at  time.Time
}

// Err returns the error that matters most: [ErrStamp], or the first of a node; nil when
// all data can be used.
func (s Status) Err() error {
	err := s.err
	for _, n := range s.Nodes {
		if errors.Is(n.Err, ErrStamp) {
			return n.Err
		}
		err = cmp.Or(err, n.Err)
	}
	return err
}

// Seen returns what the last probe found, and whether that was a moment ago.
func (ns *Nodes) Seen() (s Status, isFresh bool) {
	if last := ns.last.Load(); last != nil {
		s = *last
	}
	return s, ns.now().Sub(s.at) < seenFor
}

// Status returns what the last probe found, or probes if that is some time ago.
func (ns *Nodes) Status(ctx context.Context) Status {
	if s, isFresh := ns.Seen(); isFresh {
		return s
	}
	return ns.Probe(ctx)
}

// Probe finds out whether all data can be read and written now. It writes a little to each
// node. For five seconds after a node refused a write it is [Refusing].
func (ns *Nodes) Probe(ctx context.Context) Status { return ns.probe(ctx, nil) }

// probe deletes what may be old until background ends; nil: it leaves that to others.
func (ns *Nodes) probe(ctx, background context.Context) (s Status) {
	began := time.Now()
	if ns.options.Probed != nil {
		defer func() { ns.options.Probed(began, s.Err()) }()
	}
	ns.probing.Lock()
	defer ns.probing.Unlock()
	nodes, err := ns.Masters(ctx)
	if err != nil {
		s = Status{Away: 1, err: Translate(ctx, "find the nodes", err), at: ns.now()}
		if ctx.Err() == nil {
			for _, n := range ns.all() {
				n.probed(s.err)
			}
			ns.last.Store(&s)
			slotsAway.Set(1)
		}
		return s
	}
	formers := ns.forget(ctx, nodes)
	if ns.cluster != nil {
		ns.lay(ctx)
	}
	probed := make([]*inspection, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { probed[i] = ns.inspect(ctx, n) })
	}
	for _, n := range formers {
		group.Go(func() { ns.inspect(ctx, n) }) // it has no tags; whether it answers is all that is asked
	}
	group.Wait()
	ns.judge(ctx, background, probed)
	ns.noteLosses(ctx, probed)
	for _, in := range probed {
		s.Nodes = append(s.Nodes, in.node.probed(in.err))
	}
	s.Away, s.at = ns.share(ctx, nodes, s.Nodes), ns.now()
	ns.last.Store(&s)
	ns.show(s)
	return s
}

// inspection is what a probe read of a node beside its data.
type inspection struct {
	node     *Node
	answered bool
	err      error // why it cannot be used, or not all of it; nil: it can
	run      string
	made     int64 // connections before it was read
	tags     []tagState
	failed   []string // the tags that could not be read, though they did not move
}

// inspect probes a node.
func (ns *Nodes) inspect(ctx context.Context, n *Node) *inspection {
	in := &inspection{node: n, made: n.made.Load()}
	tags := ns.tags(ctx, n)
	info := redis.NewStringCmd(ctx, "info", "server")
	stamps, check := ns.readStamp(ctx, n)
	commands := append([]*Command{NewCommand("", info)}, stamps...)
	replies := make([]struct {
		mark         *redis.IntCmd
		server, lost *redis.StringCmd
	}, len(tags))
	for i, tag := range tags {
		r := &replies[i]
		r.mark, r.server, r.lost = redis.NewIntCmd(ctx, "incr", markKey(tag)), textOf(ctx, serverKey(tag)), textOf(ctx, lostKey(tag))
		commands = append(commands, NewCommand(tag, r.mark), NewCommand(tag, r.server), NewCommand(tag, r.lost))
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	if in.run, in.err = n.askProbe(ctx, info, commands); in.err != nil {
		return in
	}
	in.answered = true
	for i, tag := range tags {
		r := replies[i]
		switch err := cmp.Or(r.server.Err(), r.lost.Err(), r.mark.Err()); {
		case hasMoved(err):
		case err != nil:
			in.failed = append(in.failed, tag)
			in.err = cmp.Or(in.err, Translate(ctx, "probe", err))
		default:
			in.tags = append(in.tags, tagState{tag: tag, mark: r.mark.Val(), server: r.server.Val(), lost: number(r.lost.Val())})
		}
	}
	in.err = cmp.Or(check(), in.err)
	if o := ns.options; len(tags) > 0 && in.err == nil && o.Script != nil {
		// The first tag may move; the next probe has another.
		reply := ns.Eval(ctx, o.Script, []Call{{On: n, Keys: o.ScriptKeys(tags[0]), Args: o.ScriptArgs}}, nil)[0]
		if reply.Err != nil && !IsOfSlot(reply.Err) {
			in.err = Translate(ctx, "probe", reply.Err)
		}
	}
	return in
}

// askProbe sends the commands of a probe, and returns the run of the server. A node that does not
// answer is silent until a probe is answered: calls end, and fail at once. A node of a cluster
// is given up after half of the time, since calls wait that are for the data of others as well,
// and then asked again: if only the machine was slow, nothing more comes of it.
func (n *Node) askProbe(ctx context.Context, info *redis.StringCmd, commands []*Command) (run string, err error) {
	timeouts := []time.Duration{ProbeTimeout}
	isWatched := n.nodes.watched.Load()
	if n.nodes.cluster != nil && isWatched {
		timeouts = []time.Duration{ProbeTimeout / 2, ProbeTimeout}
	}
	for _, timeout := range timeouts {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		n.execProbe(bounded, commands)
		run, err = runOf(info)
		if !isWatched {
			n.noteAnswer(bounded, err)
		}
		hangs := isTimeout(err) && isWatched
		err = Translate(bounded, "probe", err)
		cancel()
		if err == nil {
			n.see(func(s *seen) { s.silent = time.Time{} })
		}
		if !hangs {
			break
		}
		n.hang()
	}
	return run, err
}

// execProbe sends the commands of a probe. To a node that is silent they go by a client of their
// own, as no other makes a connection to it.
func (n *Node) execProbe(ctx context.Context, commands []*Command) {
	by := n.client
	if n.isSilent() {
		o := *n.client.Options()
		o.PoolSize = 2 // with 1, an error would begin attempts in the background
		o.MinIdleConns, o.PipelinePoolSize, o.MaxRetries, o.DisableIdentity = 0, -1, -1, true
		// Its handlers are not those of the node's client.
		o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		by = redis.NewClient(&o)
		by.AddHook(dialHook{Node: n, probes: true})
		defer by.Close() //nolint:errcheck // nothing depends on it
	}
	n.exec(ctx, by.Pipeline(), commands, false)
}

// Watch probes every second, and when a call waits for a node of a cluster, until ctx ends, which
// is no error, so that [Nodes.State] is up to date, the metrics say which nodes can be used,
// calls to nodes that do not answer fail at once, and data that may be old are deleted. It
// calls report with the time at which each probe began, and what it found. Call it once.
func (ns *Nodes) Watch(ctx context.Context, report func(began time.Time, s Status)) error {
	defer ns.purges.Wait()
	ns.watched.Store(true)
	defer ns.watched.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, 2*ProbeTimeout) // with what comes before and after
		status := ns.probe(bounded, ctx)
		cancel()
		if ctx.Err() == nil {
			report(began, status)
		}
		select {
		case <-tick.C:
		case <-ns.late:
			// Where all calls are slow, as under too much load, probes are not to add to it.
			_ = retry.Sleep(ctx, lateAfter-time.Since(began)) // the loop looks at ctx
		case <-ctx.Done():
		}
	}
	return nil
}

// share returns the share of the slots whose node is neither usable nor behind.
func (ns *Nodes) share(ctx context.Context, nodes []*Node, status []NodeStatus) float64 {
	away := make(map[*Node]bool)
	for i, n := range nodes {
		if status[i].Err != nil {
			away[n] = true
		}
	}
	switch {
	case len(away) == 0:
		return 0
	case ns.single != nil:
		return 1
	}
	count := 0
	for _, n := range ns.laid(ctx).slots[:] {
		if n == nil || away[n] {
			count++
		}
	}
	return float64(count) / SlotCount
}
