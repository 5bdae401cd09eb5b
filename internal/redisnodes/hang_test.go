package redisnodes

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// While a probe of a server that hangs is under way, a call still ends at once: it does not get
// a connection, to wait for its answer for as long as the client does.
func TestOnlyAProbeConnectsToANodeThatHangs(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	n := ns.nodeFor(client)
	ns.watched.Store(true)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	n.hang()
	ctx, cancel := context.WithCancel(t.Context())
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		for ctx.Err() == nil {
			ns.inspect(ctx, n)
		}
	}()
	servertest.Eventually(t, "the probe is connected", func() bool {
		n.connsMu.Lock()
		defer n.connsMu.Unlock()
		return len(n.open) > 0 && n.made.Load() > 0
	})
	if err := client.Ping(ctx).Err(); !errors.Is(err, errSilent) {
		t.Errorf("a call while the server is probed: %v", err)
	}
	cancel()
	<-probed
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if in := ns.inspect(t.Context(), n); in.err != nil || n.isSilent() {
		t.Errorf("it answers, and the probe says %v; it is silent: %v", in.err, n.isSilent())
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a call after the probe was answered: %v", err)
	}
}

// A connection that is being made when its node is given up, as to a host that is gone, ends
// then. One that is being made when all are closed is made again.
func TestAConnectionThatIsBeingMadeEndsWithItsNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer func() { _ = client.Close() }()
		n := New(client, Options{}).nodeFor(client)
		tries := 0
		dial := dialHook{Node: n}.DialHook(func(ctx context.Context, _, _ string) (net.Conn, error) {
			tries++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error)
		go func() {
			_, err := dial(ctx, "tcp", "127.0.0.1:1")
			ended <- err
		}()
		synctest.Wait()
		n.closeConnections()
		synctest.Wait()
		if tries != 2 {
			t.Errorf("%d tries after all were closed, want 2", tries)
		}
		n.hang()
		if err := <-ended; !errors.Is(err, errSilent) || tries != 2 {
			t.Errorf("%v after %d tries, want that the node is down", err, tries)
		}
		if len(n.open) > 0 {
			t.Errorf("%d connections are tracked for ever", len(n.open))
		}
	})
}

// newNodes returns the nodes of a cluster of three masters and three replicas, and its client.
func newNodes(t *testing.T) (*Nodes, *redis.ClusterClient, nodesByAddr) {
	t.Helper()
	cluster := servertest.Cluster(t, 3, 1, "--cluster-node-timeout", "60000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	if err := ns.Probe(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	pause := make(nodesByAddr)
	for _, n := range cluster.Nodes {
		pause[n.HostPort] = n
	}
	return ns, client, pause
}

type nodesByAddr map[string]interface {
	Pause() error
	Resume() error
}

// A call that waits for a node of a cluster asks for a probe before it ends.
func TestACallThatWaitsAsksForAProbe(t *testing.T) {
	t.Parallel()
	ns, _, servers := newNodes(t)
	masters, err := ns.Masters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for len(ns.late) > 0 { // the machine is slow
		<-ns.late
	}
	if err := servers[masters[0].addr].Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = ns.Generation(ctx, Generation{}) // asks each node
	}()
	<-ns.late
	cancel()
	<-sent
	if err := servers[masters[0].addr].Resume(); err != nil {
		t.Fatal(err)
	}
}

// A node of a cluster that does not answer for half of a probe is given up at once, and the probe
// asks again: when the node answers by then, it was usable. On a slow machine it may answer too
// late, so there are several tries.
func TestANodeThatIsSlow(t *testing.T) {
	t.Parallel()
	ns, _, servers := newNodes(t)
	ctx := t.Context()
	masters, err := ns.Masters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	slow := masters[0]
	ns.watched.Store(true)
	servertest.Eventually(t, "a probe gives it up, and is answered", func() bool {
		servertest.Eventually(t, "it answers", func() bool { return ns.Probe(ctx).Err() == nil })
		if err := servers[slow.addr].Pause(); err != nil {
			t.Fatal(err)
		}
		probed := make(chan Status, 1)
		go func() { probed <- ns.Probe(ctx) }()
		servertest.Eventually(t, "it is given up", slow.isSilent)
		if err := servers[slow.addr].Resume(); err != nil {
			t.Fatal(err)
		}
		s := <-probed
		return s.Err() == nil && !slow.isSilent()
	})
}

// Watch probes when it is asked to: so many times that it would take minutes, one a second. It
// probes five times a second at most, besides.
func TestTheWatchProbesWhenACallWaits(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := make(chan struct{})
	watched := make(chan error, 1)
	go func() {
		watched <- ns.Watch(ctx, func(time.Time, Status) { reports <- struct{}{} })
	}()
	const probes = 120
	began, ended := time.Now(), make(chan struct{})
	go func() {
		defer close(ended)
		for range probes {
			ns.look()
			<-reports
		}
	}()
	servertest.Eventually(t, "it has probed that often", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if took := time.Since(began); took < probes*lateAfter/2 {
		t.Errorf("%d probes within %v", probes, took)
	}
	cancel()
	select {
	case <-reports:
	case err := <-watched:
		if err != nil {
			t.Error(err)
		}
	}
}

// A node that hangs when a replica takes over is still given up while it is no master, until it
// answers.
func TestAFormerMasterThatHangs(t *testing.T) {
	t.Parallel()
	ns, client, servers := newNodes(t)
	ctx := t.Context()
	found := make(chan *Node, 3) // ForEachSlave calls from a goroutine for each
	err := client.ForEachSlave(ctx, func(_ context.Context, replica *redis.Client) error {
		found <- ns.nodeFor(replica)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	former := <-found
	if err := servers[former.addr].Pause(); err != nil {
		t.Fatal(err)
	}
	former.hang()
	if err := ns.Probe(ctx).Err(); err != nil || !former.isSilent() {
		t.Errorf("it hangs: %v after a probe (%v)", former.isSilent(), err)
	}
	if err := former.client.Ping(ctx).Err(); !errors.Is(err, errSilent) {
		t.Errorf("a call: %v", err)
	}
	if err := servers[former.addr].Resume(); err != nil {
		t.Fatal(err)
	}
	if err := ns.Probe(ctx).Err(); err != nil || former.isSilent() {
		t.Errorf("it answers, and hangs: %v after a probe (%v)", former.isSilent(), err)
	}
}
