package servertest

import (
	"testing"
	"time"
)

// Eventually waits for a condition that servers, other goroutines or the clock bring
// about, and fails the test if that takes longer than 90 s.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const most = 90 * time.Second
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(most); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}
