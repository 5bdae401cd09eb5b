package clustertest_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/clustertest"
)

func startCluster(t *testing.T, masters, replicas int, args ...string) (*clustertest.Cluster, *redis.ClusterClient) {
	t.Helper()
	c, err := clustertest.StartCluster(t.Context(), masters, replicas, args...)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, client
}

func TestClusterMovesSlotsWithTheirKeys(t *testing.T) {
	t.Parallel()
	c, client := startCluster(t, 3, 0)
	const keys = 250 // more than go at once
	var slot int64
	for i := range keys {
		key := fmt.Sprintf("{slot}%d", i)
		if err := client.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		slot = client.ClusterKeySlot(t.Context(), key).Val()
	}
	from := int(slot) * 3 / 16384
	to := (from + 1) % 3
	if err := c.OpenSlot(t.Context(), c.Nodes[from], c.Nodes[to], int(slot)); err != nil {
		t.Fatal(err)
	}
	if err := c.MoveSlots(t.Context(), c.Nodes[from], c.Nodes[to], int(slot)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Nodes[to].Client.DBSize(t.Context()).Result(); err != nil || n != keys {
		t.Errorf("%d keys at the new master, %v; want %d", n, err, keys)
	}
	if value, err := client.Get(t.Context(), "{slot}7").Int(); err != nil || value != 7 {
		t.Errorf("a moved key is %d, %v", value, err)
	}
	if err := c.AwaitOK(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAReplicaOfAClusterTakesOver(t *testing.T) {
	t.Parallel()
	c, client := startCluster(t, 3, 1, "--cluster-node-timeout", "3000", "--cluster-replica-validity-factor", "0")
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	owner := int(client.ClusterKeySlot(t.Context(), "key").Val()) * 3 / 16384
	dead, heir := c.Nodes[owner], c.Nodes[3+owner]
	if n, err := dead.Client.Wait(t.Context(), 1, time.Minute).Result(); n != 1 {
		t.Fatalf("%d replicas have the write: %v", n, err)
	}
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	var living []*clustertest.Node
	for _, n := range c.Nodes {
		if n != dead {
			living = append(living, n)
		}
	}
	if err := c.AwaitOK(t.Context(), living...); err != nil {
		t.Fatal(err)
	}
	if value, err := heir.Client.Get(t.Context(), "key").Result(); value != "value" {
		t.Errorf("the new master has %q: %v", value, err)
	}
	if err := dead.Restart(t.Context()); err != nil { // it comes back as a replica
		t.Fatal(err)
	}
	if err := c.AwaitOK(t.Context()); err != nil {
		t.Fatal(err)
	}
	if role, err := dead.Client.Do(t.Context(), "ROLE").Slice(); err != nil || role[0] != "slave" {
		t.Errorf("the role of what was a master: %v, %v", role, err)
	}
}

func TestAClusterThatDoesNotStartShowsTheLog(t *testing.T) {
	temporary, err := os.MkdirTemp("", "ct") // of a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	t.Setenv("TMPDIR", temporary)
	t.Setenv("ACTIVITYD_TEST_FOLDER", "")
	if _, err := clustertest.StartCluster(t.Context(), 2, 0, "--maxmemory", "rather-much"); err == nil {
		t.Error("started")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
