package index

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver/servertest"
)

// A node of which the map of the slots says that it has none when its data are judged, as
// while servers disagree after a failover, is not believed.
func TestANodeWithoutSlotsIsNotBelieved(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t, 3, 1, "--cluster-node-timeout", "1000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	ix := New(client, Options{Settings: Settings{Need: 10, Max: 12, Min: 10}})
	ctx := t.Context()
	if err := ix.Probe(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	var replicas atomic.Int64 // ForEachSlave calls from a goroutine for each
	err := client.ForEachSlave(ctx, func(ctx context.Context, replica *redis.Client) error {
		replicas.Add(1)
		if err := ix.client.knows(ctx, ix.client.nodeFor(replica)); !errors.Is(err, ErrUnknown) {
			t.Errorf("the data of %v: %v", replica, err)
		}
		return nil
	})
	if err != nil || replicas.Load() == 0 {
		t.Errorf("%d replicas, %v", replicas.Load(), err)
	}
}
