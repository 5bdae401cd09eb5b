package redisnodes

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A call waits for the node of its key only, and a connection is tried once: a node out of reach, whose every try takes a
// second, would hold up the probe of the others until they are not believed any more.
func TestNodesOutOfReachAreTriedOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var dialled []string
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "low.example:1"}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "high.example:1"}}},
			}, nil
		},
		DialerRetries: 1,
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialled = append(dialled, addr)
			return nil, errors.New("out of reach")
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	ns := Open(client, Options{Stamp: func() string { return "" }})
	t.Cleanup(func() { _ = ns.Close() })
	_ = ns.node(&redis.Options{Addr: "low.example:1", Dialer: client.Options().Dialer}).inspect(t.Context())
	if len(dialled) != 1 {
		t.Errorf("a probe dialled %v", dialled)
	}
	dialled = nil
	ns.send(t.Context(), []redis.Cmder{redis.NewIntCmd(t.Context(), "zcard", "foo")}) // in slot 12182
	if len(dialled) == 0 || slices.Contains(dialled, "low.example:1") {
		t.Errorf("a call dialled %v", dialled)
	}
}

// A cluster that is opened again is found by the masters that were there: the given addresses may be those of dead nodes.
func TestAClusterIsFoundAgainByItsMasters(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"given.example:1"}})
	t.Cleanup(func() { _ = client.Close() })
	ns := Open(client, Options{})
	t.Cleanup(func() { _ = ns.Close() })
	ns.node(&redis.Options{Addr: "left.example:1"}) // and may serve another cluster
	ns.last.Store(&Status{Nodes: []NodeStatus{{Node: "high.example:1"}}})
	ns.reopen()
	if c, ok := ns.client().(*redis.ClusterClient); !ok || !slices.Equal(c.Options().Addrs, []string{"given.example:1", "high.example:1"}) {
		t.Errorf("it is looked for at %v", c.Options().Addrs)
	}
}
