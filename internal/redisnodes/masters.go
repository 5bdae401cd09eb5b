package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Masters returns the nodes that have slots: the server, or those of the cluster as they
// are now.
func (ns *Nodes) Masters(ctx context.Context) ([]*Node, error) {
	if ns.single != nil {
		return []*Node{ns.single}, nil
	}
	// It asks one server after the other; where one does not answer, the rest of the time is
	// for what follows.
	timeout := FindTimeout
	if ns.layout.Load() != nil {
		timeout = findAgainTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g := &gaps{}
	ctx = context.WithValue(ctx, gapsKey{}, g)
	nodes, err := ns.askMasters(ctx)
	if g.found { // in the answers of all servers
		g.accepted = true
		nodes, err = ns.askMasters(ctx)
	}
	if err == nil && len(nodes) == 0 { // a node that knows of no cluster said so
		err = errNoSlots
	}
	return nodes, err
}

// askMasters asks the servers of the cluster for its masters. Without an answer they are those
// of before.
func (ns *Nodes) askMasters(ctx context.Context) (nodes []*Node, err error) {
	var mu sync.Mutex // ForEachMaster calls concurrently
	err = ns.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		n := ns.nodeFor(master)
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, n)
		return nil
	})
	slices.SortFunc(nodes, func(a, b *Node) int { return strings.Compare(a.addr, b.addr) })
	return nodes, err
}

// errNoSlots is the error of a cluster whose slots are not on any node.
var errNoSlots = fmt.Errorf("%w: no node of the cluster has slots", ErrUnavailable)

// gaps says how the answers to one question for the slots are taken that name masters without an
// address: a server that found another one at the address of a master does so, until it learns of
// the new one. Of such a name go-redis would make an address of this machine. Questions that
// go-redis asks by itself have none, and accept no gap.
type gaps struct {
	found    bool // in the last answer
	accepted bool // as all servers answer so: the slots of such a master have none
}

// gapsKey is the key of the gaps in a context.
type gapsKey struct{}

// errGap is the error of an answer that is not accepted, so that the next server is asked.
var errGap = errors.New("the server does not know the address of a master")

// slotsHook leaves out of the answers to CLUSTER SLOTS what has no address.
type slotsHook struct{ passing }

// ProcessHook implements [redis.Hook].
func (slotsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		asked, isSlots := cmd.(*redis.ClusterSlotsCmd)
		if err != nil || !isSlots {
			return err
		}
		known, isWhole := withAddress(asked.Val())
		g, _ := ctx.Value(gapsKey{}).(*gaps)
		if g != nil {
			g.found = !isWhole
		}
		if !isWhole && (g == nil || !g.accepted) {
			cmd.SetErr(errGap)
			return errGap
		}
		asked.SetVal(known)
		return nil
	}
}

// withAddress leaves out replicas without an address, and slots whose master has none. It
// reports whether all masters have one.
func withAddress(slots []redis.ClusterSlot) (known []redis.ClusterSlot, isWhole bool) {
	isWhole = true
	for _, some := range slots {
		if len(some.Nodes) > 0 && !hasAddress(some.Nodes[0]) {
			isWhole = false
			continue
		}
		some.Nodes = slices.DeleteFunc(some.Nodes, func(n redis.ClusterNode) bool { return !hasAddress(n) })
		known = append(known, some)
	}
	return known, isWhole
}

// hasAddress reports whether a host or a port is known. A server may leave out the host, which is
// then that of the server; or, with TLS, have the port 0.
func hasAddress(n redis.ClusterNode) bool { return n.Addr != net.JoinHostPort("", "0") }

// forget forgets what was seen of nodes that are no masters any more: it may be wrong when one
// becomes a master again. It returns those that are silent: while the servers disagree about the
// masters, calls may still go there, and each question of which slots are where.
func (ns *Nodes) forget(ctx context.Context, masters []*Node) (silent []*Node) {
	for _, n := range ns.all() {
		switch {
		case slices.Contains(masters, n):
			continue
		case n.hasLeft(ctx):
			ns.mu.Lock()
			delete(ns.nodes, n.client)
			ns.mu.Unlock()
		case n.isSilent():
			silent = append(silent, n)
		}
		n.see(func(s *seen) { *s = seen{silent: s.silent} })
	}
	return silent
}

// hasLeft reports whether the node has left the cluster: go-redis closes its client a minute
// later. Nothing is sent.
func (n *Node) hasLeft(ctx context.Context) bool {
	ended, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	return errors.Is(n.client.Ping(ended).Err(), redis.ErrClosed)
}
