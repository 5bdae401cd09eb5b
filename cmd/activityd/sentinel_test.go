package main

import (
	"context"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// The Sentinel that was asked hangs, as on the machine of the dead master. The client asks the rest for the current
// master.
func TestASentinelThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	w := servertest.NewWatched(t, 3*time.Second)
	client, err := openRedis(w.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	writes := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // as a probe
		defer cancel()
		return client.Set(ctx, "key", "value", 0).Err() == nil
	}
	for _, other := range w.Sentinels[1:] {
		must(other.Pause())
	}
	servertest.Eventually(t, "a write, after the first Sentinel was asked", writes)
	for _, other := range w.Sentinels[1:] {
		must(other.Resume())
	}
	must(w.Sentinels[0].Pause())
	must(w.Nodes[0].Kill())
	servertest.Eventually(t, "a write to the new master", writes)
}
