package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// probeEvery is the time between two probes of [Nodes.Watch].
const probeEvery = time.Second

// NodeStatus is the state of a node: a server, or a master of a cluster.
type NodeStatus struct {
	Node  string // its address; "sentinel" of a server behind Sentinels
	State State
	// Err is why it is neither [Usable] nor [Behind]. It matches [ErrUnavailable] or [ErrStamp].
	Err error
}

// Status is the result of a probe.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the nodes that are neither [Usable] nor [Behind], 0 to 1

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

// Seen returns the result of the last probe, and whether it still counts.
func (ns *Nodes) Seen() (s Status, isFresh bool) {
	last := ns.last.Load()
	if last == nil {
		return Status{}, false
	}
	return *last, time.Since(last.at) < seenFor()
}

// Status returns the result of the last probe, and probes if it does not count any more.
func (ns *Nodes) Status(ctx context.Context) Status {
	if s, isFresh := ns.Seen(); isFresh {
		return s
	}
	ns.asking.Lock()
	defer ns.asking.Unlock()
	if s, isFresh := ns.Seen(); isFresh {
		return s
	}
	return ns.Probe(ctx)
}

// Probe finds out whether all data can be read and written now. It writes a little to each node, and
// deletes data that may be old before it returns.
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

// Watch probes every second until ctx ends, which is no error. So [Nodes.Usable] is up to date, the metrics show the nodes, and data that
// may be old are deleted. It calls report with the beginning of each probe and its result. Call it once.
func (ns *Nodes) Watch(ctx context.Context, report func(began time.Time, s Status)) error {
	var purges sync.WaitGroup
	defer purges.Wait()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		status, old := ns.probe(ctx)
		for _, in := range old {
			purges.Go(func() { ns.purge(ctx, in) })
		}
		if ctx.Err() == nil {
			report(status.began, status)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// LostAt returns when this process last found that data were gone or had been deleted as they might be
// old, in unix milliseconds; 0: never.
func (ns *Nodes) LostAt() int64 { return ns.lostAt.Load() }

// inspection is the result of a probe of a node.
type inspection struct {
	found

	node    *Node
	err     error // why nothing was found
	refused error // why it cannot be written
}

// probe looks at all nodes, and returns also the nodes whose data have to be deleted.
func (ns *Nodes) probe(ctx context.Context) (s Status, old []inspection) {
	ns.probing.Lock()
	defer ns.probing.Unlock()
	s.began = time.Now()
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
	away := 0
	for _, in := range probed {
		err := ns.judge(ctx, in, runs)
		if errors.Is(err, ErrUnknown) && len(in.records) > 0 {
			old = append(old, in)
		}
		status := in.node.probed(cmp.Or(err, in.refused))
		if s.Nodes = append(s.Nodes, status); status.Err != nil {
			away++
		}
	}
	for _, n := range ns.nodes.Range {
		if n := n.(*Node); err == nil && !slices.Contains(nodes, n) { //nolint:forcetypeassert // nodes has no other values
			n.forget()
		}
	}
	if s.Away = 1; len(nodes) > 0 {
		s.Away = float64(away) / float64(len(nodes))
	}
	s.at = time.Now()
	if ctx.Err() == nil || ns.last.Load() == nil {
		ns.last.Store(&s)
		show(s)
	}
	if ns.options.Probed != nil {
		ns.options.Probed(s.began, s.Err())
	}
	return s, old
}

// inspect looks at a node over a connection that it makes: so it finds the server to which the address leads now.
func (ns *Nodes) inspect(ctx context.Context, n *Node) inspection {
	in := inspection{node: n}
	c := n.plainClient(ProbeTimeout)
	defer c.Close() //nolint:errcheck // nothing depends on it
	if in.found, in.err = ns.look(ctx, c); in.err != nil || in.isReplica || ns.checkStamp(in.found) != nil || ns.options.Try == nil {
		return in
	}
	for tag := range in.records {
		if err := ns.options.Try(ctx, c, tag); !hasMoved(err) {
			in.refused = Translate(ctx, "probe", err)
		}
		break // a single node has it
	}
	return in
}

// judge decides whether the data of a node are believed, and returns why they are not. runs are those of all
// masters that answered. A record of another master's run came from there with its slot; but where none is of
// the node's own run, the node may be a replica that took over.
func (ns *Nodes) judge(ctx context.Context, in inspection, runs map[string]bool) error {
	n := in.node
	if in.err != nil {
		return Translate(ctx, "probe", in.err)
	}
	if in.isReplica {
		n.forget()
		return errReplica
	}
	if err := ns.checkStamp(in.found); err != nil {
		return err
	}
	own, moved, isOld := "", false, false
	for _, record := range in.records {
		switch _, run := parse(record); {
		case run == in.run:
			own = max(own, record)
		case run != "" && runs[run]:
			moved = true
		default:
			isOld = true
		}
	}
	if lacks := n.sees(in.run); lacks || isOld || own == "" {
		return fmt.Errorf("%s: %w", n, ErrUnknown)
	}
	n.belief.CompareAndSwap(nil, &belief{run: in.run})
	if moved {
		c := n.plainClient(ProbeTimeout)
		defer c.Close()                //nolint:errcheck // nothing depends on it
		_ = ns.settle(ctx, c, in, own) // or the next probe does
	}
	if n.record != own && ns.last.Load() != nil { // a process deleted the data of before
		ns.lostAt.Store(max(time.Now().UnixMilli(), ns.lostAt.Load()+1))
	}
	n.record = own
	return nil
}
