package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	probeEvery = time.Second            // between two probes of [Nodes.Watch]
	kickedRest = 100 * time.Millisecond // between two that were asked for
)

// NodeStatus is what is known of a node: a server, or a master of a cluster.
type NodeStatus struct {
	Node  string // its address; "sentinel" of a server behind one
	State State
	// Err is why it is neither [Usable] nor [Behind]. It matches [ErrUnavailable] or [ErrStamp].
	Err error
}

// Status is what a probe found out.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the slots whose node is neither [Usable] nor [Behind], 0 to 1

	err       error // the nodes cannot be found
	began, at time.Time
}

// Err returns the error that matters most: [ErrStamp], or the first of a node; nil if
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

// FindErr returns why the nodes could not be found; nil: they were.
func (s Status) FindErr() error { return s.err }

// Seen returns what the last probe found, and whether that was a moment ago.
func (ns *Nodes) Seen() (s Status, isFresh bool) {
	if last := ns.last.Load(); last != nil {
		s = *last
	}
	fresh := seenFor()
	switch {
	case ns.watched.Load():
	case s.Err() != nil:
		fresh = probeEvery
	default: // before what was seen of a node is too old
		fresh -= probeEvery
	}
	return s, time.Since(s.at) < fresh
}

// Status returns what the last probe found, or probes if that is some time ago.
func (ns *Nodes) Status(ctx context.Context) Status {
	if s, isFresh := ns.Seen(); isFresh {
		return s
	}
	return ns.Probe(ctx)
}

// Probe finds out whether all data can be read and written now. It writes a little to each node, and
// deletes what may be old before it returns.
func (ns *Nodes) Probe(ctx context.Context) Status {
	s, old := ns.probe(ctx)
	if len(old) == 0 {
		return s
	}
	for _, in := range old {
		ns.purge(ctx, in)
	}
	s, _ = ns.probe(ctx)
	return s
}

// Watch probes every second, and at once after a call that timed out or a connection that was not believed,
// until ctx ends, which is no error. So [Nodes.Usable] is up to date, the metrics say which nodes can be used, and data that
// may be old are deleted. It calls report with the beginning of each probe and its result. Call it once.
func (ns *Nodes) Watch(ctx context.Context, report func(began time.Time, s Status)) error {
	var purges sync.WaitGroup
	defer purges.Wait()
	ns.watched.Store(true)
	defer ns.watched.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		status, old := ns.probe(ctx)
		for _, in := range old {
			purges.Go(func() { ns.purge(ctx, in) })
		}
		if ctx.Err() == nil {
			report(began, status)
		}
		select {
		case <-tick.C:
		case <-ns.kicked:
			_ = retry.Sleep(ctx, kickedRest) // the loop looks at ctx
		case <-ctx.Done():
		}
	}
	return nil
}

// kick makes [Nodes.Watch] probe now.
func (ns *Nodes) kick() {
	select {
	case ns.kicked <- struct{}{}:
	default: // it will
	}
}

// LostAt returns when this process last found that data were gone or had been deleted as they might be
// old, in unix milliseconds; 0: never.
func (ns *Nodes) LostAt() int64 { return ns.lostAt.Load() }

// inspection is what a probe found out about a node.
type inspection struct {
	found

	node    *Node
	err     error // why nothing was found
	refused error // why it cannot be written
}

// probe looks at all nodes, and returns also those whose data have to be deleted.
func (ns *Nodes) probe(ctx context.Context) (s Status, old []inspection) {
	s.began = time.Now()
	ns.probing.Lock()
	defer ns.probing.Unlock()
	if last := ns.last.Load(); last != nil && last.began.After(s.began) {
		return *last, nil // by another call
	}
	if ns.options.Probed != nil {
		defer func() { ns.options.Probed(s.began, s.Err()) }()
	}
	nodes, err := ns.masters(ctx)
	s.err = Translate(ctx, "find the nodes", err)
	probed, runs := make([]inspection, len(nodes)), make(map[string]bool)
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { probed[i] = ns.inspect(ctx, n) })
	}
	group.Wait()
	for _, in := range probed {
		runs[in.run] = in.err == nil && !in.isReplica
	}
	for _, in := range probed {
		err := ns.judge(ctx, in, runs)
		if isOld(err) && len(in.stored) > 0 {
			old = append(old, in)
		}
		s.Nodes = append(s.Nodes, in.node.probed(cmp.Or(err, in.refused)))
	}
	for _, n := range ns.all() {
		if err == nil && !slices.Contains(nodes, n) {
			n.distrust() // a former master
		}
	}
	s.Away, s.at = ns.share(s), time.Now()
	if ctx.Err() == nil || ns.last.Load() == nil {
		ns.last.Store(&s)
		ns.show(s)
	}
	return s, old
}

// inspect looks at a node over a connection that it makes: so it finds the server to which the address leads now.
func (ns *Nodes) inspect(ctx context.Context, n *Node) inspection {
	in := inspection{node: n}
	c := n.plainClient(ProbeTimeout)
	defer c.Close() //nolint:errcheck // nothing depends on it
	if in.found, in.err = ns.look(ctx, c); in.err != nil || in.isReplica || ns.checkStamp(in.found) != nil || ns.options.Script == nil {
		return in
	}
	for tag := range in.stored {
		if err := ns.options.Script.Run(ctx, c, ns.options.ScriptKeys(tag), ns.options.ScriptArgs...).Err(); !hasMoved(err) {
			in.refused = Translate(ctx, "probe", err)
		}
		break // one is enough
	}
	return in
}

// judge decides whether the data of a node are believed, and returns why they are not. runs are those of all
// masters that answered. A tag whose run is that of another master came from there with its slot; but where none is of
// the node's own run, the node may be a replica that took over.
func (ns *Nodes) judge(ctx context.Context, in inspection, runs map[string]bool) error {
	n := in.node
	if in.err != nil {
		return Translate(ctx, "probe", in.err)
	}
	if err := ns.checkStamp(in.found); err != nil || in.isReplica {
		n.distrust()
		return cmp.Or(err, errReplica)
	}
	token, moved, isOld := int64(0), false, false
	for _, s := range in.stored {
		switch {
		case s.run == in.run:
			token = max(token, s.token)
		case runs[s.run]:
			moved = true
		default:
			isOld = true
		}
	}
	wasLeft := token < n.token // other data were written meanwhile
	n.token = max(n.token, token)
	// What this process wrote to the server of before, while another process built sets here, is in no set.
	lacks := ns.cluster == nil && n.led != "" && n.led != in.run && n.emptied != in.run
	if isOld || token == 0 || wasLeft || lacks {
		n.distrust()
		return fmt.Errorf("%s: %w", n.name(), ErrUnknown)
	}
	if moved {
		c := n.plainClient(ProbeTimeout)
		defer c.Close()                  //nolint:errcheck // nothing depends on it
		_ = ns.settle(ctx, c, in, token) // or the next probe does
	}
	n.trust(in.run)
	if n.believed != token && ns.last.Load() != nil { // a process deleted what had been there
		ns.lostAt.Store(max(time.Now().UnixMilli(), ns.lostAt.Load()+1))
	}
	n.believed = token
	return nil
}

// share returns the share of the slots whose node is neither usable nor behind.
func (ns *Nodes) share(s Status) float64 {
	l := ns.layout.Load()
	if s.err != nil || l == nil {
		return 1
	}
	away, all := 0, 0
	for n, slots := range *l {
		all += slots
		if slices.ContainsFunc(s.Nodes, func(status NodeStatus) bool { return status.Node == n.name() && status.Err != nil }) {
			away += slots
		}
	}
	return float64(away) / float64(all)
}
