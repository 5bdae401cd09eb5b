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
// take as long. It looks every 5 ms at first, and then after a twentieth of the time that has
// passed, up to 100 ms: most conditions ask a server, and many tests wait at the same time.
func EventuallyWithin(t testing.TB, most time.Duration, what string, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for begin := time.Now(); !holds(); <-timer.C {
		passed := time.Since(begin)
		if passed > most {
			t.Fatalf("not within %v: %s", most, what)
		}
		timer.Reset(min(max(passed/20, 5*time.Millisecond), 100*time.Millisecond))
	}
}
