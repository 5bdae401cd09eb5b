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
// are now. Without an answer they are those of before.
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
	var mu sync.Mutex // ForEachMaster calls concurrently
	var nodes []*Node
	err := ns.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		n := ns.nodeFor(master)
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, n)
		return nil
	})
	slices.SortFunc(nodes, func(a, b *Node) int { return strings.Compare(a.addr, b.addr) })
	if err == nil && len(nodes) == 0 { // a node that knows of no cluster said so
		err = errNoSlots
	}
	return nodes, err
}

// errNoSlots is the error of a cluster whose slots are not on any node.
var errNoSlots = fmt.Errorf("%w: no node of the cluster has slots", ErrUnavailable)

// slotsHook leaves out of the answers to CLUSTER SLOTS what has no address: replicas, and slots whose
// master has none. A server that found another one at the address of a master names it so, until it
// learns of the new one. Of such a name go-redis would make an address of this machine.
type slotsHook struct{ passing }

// ProcessHook implements [redis.Hook].
func (slotsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if asked, isSlots := cmd.(*redis.ClusterSlotsCmd); err == nil && isSlots {
			slots := slices.DeleteFunc(asked.Val(), func(s redis.ClusterSlot) bool { return len(s.Nodes) > 0 && !hasAddress(s.Nodes[0]) })
			for i := range slots {
				slots[i].Nodes = slices.DeleteFunc(slots[i].Nodes, func(n redis.ClusterNode) bool { return !hasAddress(n) })
			}
			asked.SetVal(slots)
		}
		return err
	}
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
