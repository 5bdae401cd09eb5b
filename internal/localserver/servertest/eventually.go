package servertest

import (
	"testing"
	"time"
)

// Eventually waits for a condition that servers, other goroutines or the clock bring
// about, and fails the test if that takes longer than 90 s.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	EventuallyWithin(t, 90*time.Second, what, holds)
}

// EventuallyWithin is like [Eventually] for a condition that may take longer, or must not
// take as long.
func EventuallyWithin(t testing.TB, most time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(most); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}
