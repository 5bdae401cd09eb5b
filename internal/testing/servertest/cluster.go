package servertest

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/clustertest"
)

// RedisCluster returns a client of a private cluster of two nodes, each with half of the
// slots.
func RedisCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: Cluster(t, 2, 0).Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Cluster returns an empty cluster that is this test's alone. It is closed when t ends.
func Cluster(t testing.TB, masters, replicas int, args ...string) *clustertest.Cluster {
	t.Helper()
	c, err := clustertest.StartCluster(t.Context(), masters, replicas, args...)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() {
		var errs []error
		for _, n := range c.Nodes {
			errs = append(errs, n.Kill())
		}
		if err := errors.Join(append(errs, c.Close())...); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
	return c
}

// Watched returns a Redis, its replica and three Sentinels that are this test's alone. They
// are closed when t ends.
func Watched(t testing.TB, downAfter time.Duration, args ...string) *clustertest.Watched {
	t.Helper()
	w, err := clustertest.StartWatched(t.Context(), downAfter, args...)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() {
		var errs []error
		for _, n := range slices.Concat(w.Sentinels, w.Nodes) {
			errs = append(errs, n.Kill())
		}
		if err := errors.Join(append(errs, w.Close())...); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
	return w
}

// FreePort returns a loopback address and a port of it that nothing listens on.
func FreePort(t testing.TB) (host, port string) {
	t.Helper()
	host, n, err := clustertest.FreePorts(t.Context(), 1)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	return host, strconv.Itoa(n)
}
