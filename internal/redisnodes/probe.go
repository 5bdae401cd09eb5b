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
	Node string // its address; "sentinel" of a server behind Sentinels
	Err  error  // why it cannot be used; it matches [ErrUnavailable] or [ErrStamp]
}

// Status is the result of a probe.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the nodes that cannot be used, 0 to 1

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

// isFresh reports whether the result of a probe still counts.
func (s *Status) isFresh() bool { return s != nil && time.Since(s.at) < seenFor() }

// Status returns the result of the last probe, and probes if it does not count any more.
func (ns *Nodes) Status(ctx context.Context) Status {
	if s := ns.last.Load(); s.isFresh() {
		return *s
	}
	ns.asking.Lock()
	defer ns.asking.Unlock()
	if s := ns.last.Load(); s.isFresh() {
		return *s
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
	for _, f := range old {
		ns.purge(ctx, f)
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
		for _, f := range old {
			purges.Go(func() { ns.purge(ctx, f) })
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

// probe looks at all nodes, and returns also the nodes whose data have to be deleted.
func (ns *Nodes) probe(ctx context.Context) (s Status, old []found) {
	ns.probing.Lock()
	defer ns.probing.Unlock()
	s.began = time.Now()
	nodes, err := ns.masters(ctx)
	s.err = Translate(ctx, "find the nodes", err)
	looks, runs := make([]found, len(nodes)), make(map[string]bool)
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { looks[i] = n.inspect(ctx) })
	}
	group.Wait()
	for _, f := range looks {
		runs[f.run] = f.err == nil && !f.isReplica
	}
	away := 0
	for _, f := range looks {
		err := ns.believes(ctx, f, runs)
		if errors.Is(err, ErrUnknown) && len(f.records) > 0 {
			old = append(old, f)
		}
		status := f.node.probed(cmp.Or(err, f.refused))
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
	return s, old
}

// inspect looks at a node over a connection that it makes: so it finds the server to which the address leads now.
func (n *Node) inspect(ctx context.Context) found {
	c := n.plainClient(ProbeTimeout)
	defer c.Close() //nolint:errcheck // nothing depends on it
	f := n.look(ctx, c)
	if f.err != nil || f.isReplica || n.ns.checkStamp(f) != nil {
		return f
	}
	for tag := range f.records {
		err := n.ns.options.Try(ctx, c, tag)
		if f.refused = Translate(ctx, "probe", err); hasMoved(err) {
			f.refused = nil
		} else if err != nil && ctx.Err() == nil && !errors.Is(f.refused, ErrUnavailable) { // a reply of no known meaning
			f.refused = fmt.Errorf("probe: %w: %w", ErrRefused, err)
		}
		break // a single node has it
	}
	return f
}

// believes takes note of the server that a probe found at a node, and returns why its data are not believed.
func (ns *Nodes) believes(ctx context.Context, f found, runs map[string]bool) error {
	n := f.node
	switch {
	case f.isReplica:
		n.forget()
	case f.err == nil:
		n.sees(f.run)
	}
	own, moved, err := n.judge(f, runs)
	if err != nil {
		return Translate(ctx, "probe", err)
	}
	if moved {
		c := n.plainClient(ProbeTimeout)
		defer c.Close()               //nolint:errcheck // nothing depends on it
		_ = ns.settle(ctx, c, f, own) // or the next probe does
	}
	if n.record != own && ns.last.Load() != nil { // a process deleted the data of before
		ns.lostAt.Store(max(time.Now().UnixMilli(), ns.lostAt.Load()+1))
	}
	n.record = own
	return nil
}
