package redisnodes

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// A node of which the map of the slots says that it has none when its data are judged, as
// while servers disagree after a failover, is not believed.
func TestANodeWithoutSlotsIsNotBelieved(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t, 3, 1, "--cluster-node-timeout", "15000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	ctx := t.Context()
	if err := ns.Probe(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	var replicas atomic.Int64 // ForEachSlave calls from a goroutine for each
	err := client.ForEachSlave(ctx, func(ctx context.Context, replica *redis.Client) error {
		replicas.Add(1)
		if _, err := ns.nodeFor(replica).compare(ctx, 0); !errors.Is(err, ErrUnknown) {
			t.Errorf("the data of %v: %v", replica, err)
		}
		return nil
	})
	if err != nil || replicas.Load() == 0 {
		t.Errorf("%d replicas, %v", replicas.Load(), err)
	}
}

// Only a reply can say that a server does not report its run. Where there was none, nothing
// is known of the run: what was known stays.
func TestOnlyAReplySaysThatARunIsNotReported(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errSilent, redis.ErrClosed, io.EOF, net.ErrClosed, redis.Nil, replyError("LOADING Redis is loading the dataset in memory"), replyError("NOAUTH Authentication required.")} {
		info := redis.NewStringCmd(t.Context(), "info")
		info.SetErr(err)
		if _, got := runOf(info); !errors.Is(got, err) {
			t.Errorf("after %v: %v", err, got)
		}
	}
	for _, err := range []error{replyError("NOPERM this user has no permissions to run the 'info' command"), replyError("section (server) is not supported")} {
		info := redis.NewStringCmd(t.Context(), "info")
		info.SetErr(err)
		if run, got := runOf(info); run != "" || got != nil {
			t.Errorf("after %v: %q, %v", err, run, got)
		}
	}
}

type replyError string

func (r replyError) Error() string { return string(r) }
func (replyError) RedisError()     {}

// A server that answered a probe while it was loading its data, so that nothing was
// compared, is not believed for that.
func TestWhatWasNotComparedIsNotBelieved(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ns := New(client, Options{})
	ctx, n := t.Context(), ns.single
	for name, in := range map[string]inspection{
		"no tag could be read": {run: "new", failed: []string{""}},
		"all have moved":       {run: "new"},
	} {
		in.node, in.answered, in.made = n, true, n.made.Load()
		ns.judge(ctx, nil, []*inspection{&in})
		if k := n.seen.Load().known; k != nil {
			t.Errorf("%s: it is known: %+v", name, k)
		}
	}
	if k, err := n.compare(ctx, 0); err != nil || k.err != nil {
		t.Errorf("it is not believed after it was compared: %v", err)
	}
}
