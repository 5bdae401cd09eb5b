package clustertest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/clustertest"
)

func TestSentinelsPromoteTheReplica(t *testing.T) {
	t.Parallel()
	w, err := clustertest.StartWatched(t.Context(), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewFailoverClient(w.FailoverOptions())
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Nodes[0].Client.Wait(t.Context(), 1, time.Minute).Result(); n != 1 {
		t.Fatalf("%d replicas have the write: %v", n, err)
	}
	if err := w.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for err := errors.New("not tried"); err != nil; <-tick.C {
		err = client.Set(t.Context(), "key", "newer", 0).Err()
	}
	if value, err := w.Nodes[1].Client.Get(t.Context(), "key").Result(); value != "newer" {
		t.Errorf("the new master has %q: %v", value, err)
	}
}
