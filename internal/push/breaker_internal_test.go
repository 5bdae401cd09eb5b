package push

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const (
	oneOrigin   = "https://one.example:443"
	otherOrigin = "https://other.example:443"
)

// admitted lets a message through, or fails the test.
func admitted(t *testing.T, b *breakers, origin string) pass {
	t.Helper()
	p, wait := b.admit(WebPush, origin, 20*time.Second)
	if wait > 0 {
		t.Fatalf("%s is left alone for %v", origin, wait)
	}
	return p
}

// refuses fails the test if a message is let through, and returns how long it is to wait.
func refuses(t *testing.T, b *breakers, origin string) time.Duration {
	t.Helper()
	_, wait := b.admit(WebPush, origin, 20*time.Second)
	if wait <= 0 {
		t.Fatalf("%s is not left alone", origin)
	}
	return wait
}

// passTime lets time of the bubble pass.
func passTime(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

var (
	noAnswerYet = Result{Outcome: Ambiguous, Reason: "timeout"}
	taken       = Result{Outcome: Accepted, Status: 201}
)

// trip makes the breaker of an origin open.
func trip(t *testing.T, b *breakers, origin string) {
	t.Helper()
	for range failuresToOpen {
		b.report(admitted(t, b, origin), noAnswerYet)
	}
}

func TestABreakerOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		for range 10 {
			for range failuresToOpen - 1 {
				b.report(admitted(t, b, oneOrigin), noAnswerYet)
			}
			b.report(admitted(t, b, oneOrigin), taken)
		}
		trip(t, b, oneOrigin)
		if wait := refuses(t, b, oneOrigin); wait > failPause {
			t.Errorf("left alone for %v", wait)
		}
		admitted(t, b, otherOrigin)
	})
}

// When its pause is over, one message finds out; the others wait for it.
func TestABreakerLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		trip(t, b, oneOrigin)
		longest := time.Duration(0)
		for range 20 {
			wait := refuses(t, b, oneOrigin)
			longest = max(longest, wait)
			passTime(wait)
			probe := admitted(t, b, oneOrigin)
			for range 3 {
				refuses(t, b, oneOrigin)
			}
			b.report(probe, noAnswerYet)
		}
		if longest > maxFailPause || longest < maxFailPause/2 {
			t.Errorf("left alone for %v at most, want %v", longest, maxFailPause)
		}
		passTime(refuses(t, b, oneOrigin))
		b.report(admitted(t, b, oneOrigin), taken)
		for range 3 {
			admitted(t, b, oneOrigin)
		}
		if len(b.origins) != 0 {
			t.Errorf("%d breakers are kept", len(b.origins))
		}
		trip(t, b, oneOrigin) // it begins again with a short pause
		if wait := refuses(t, b, oneOrigin); wait > failPause {
			t.Errorf("left alone for %v", wait)
		}
	})
}

// A probe of which nothing is heard is followed by another.
func TestAProbeMayBeLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		trip(t, b, oneOrigin)
		passTime(time.Second)
		probe := admitted(t, b, oneOrigin)
		b.release(probe) // it was cancelled
		admitted(t, b, oneOrigin)
		refuses(t, b, oneOrigin)
		passTime(20 * time.Second)
		admitted(t, b, oneOrigin)
	})
}

// What becomes of messages that were sent before the breaker opened says nothing about
// the time since.
func TestResultsOfEarlierMessagesDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		var early []pass
		for range 100 {
			early = append(early, admitted(t, b, oneOrigin))
		}
		for _, p := range early[:50] {
			b.report(p, noAnswerYet)
		}
		if wait := refuses(t, b, oneOrigin); wait > failPause {
			t.Errorf("left alone for %v: failures of one moment count once", wait)
		}
		b.report(early[50], taken)
		refuses(t, b, oneOrigin)
		b.report(early[51], Result{Outcome: Wait, Origin: true, After: time.Minute})
		if wait := refuses(t, b, oneOrigin); wait != time.Minute {
			t.Errorf("left alone for %v, want the minute that it asks for", wait)
		}
		passTime(time.Minute)
		probe := admitted(t, b, oneOrigin)
		b.report(early[52], noAnswerYet)
		b.report(probe, taken)
		admitted(t, b, oneOrigin)
	})
}

func TestPausesByResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result    Result
		low, high time.Duration
	}{
		"asked for":              {Result{Outcome: Wait, Status: 503, Origin: true, After: 15 * time.Minute}, 15 * time.Minute, 15 * time.Minute},
		"asked for, no time":     {Result{Outcome: Wait, Status: 503, Origin: true}, failPause / 2, failPause},
		"asked for, for ever":    {Result{Outcome: Wait, Status: 429, Origin: true, After: 1000 * time.Hour}, maxWait, maxWait},
		"keys":                   {Result{Outcome: Credentials, Status: 403, Origin: true}, refusedPause / 2, refusedPause},
		"keys, for long":         {Result{Outcome: Credentials, Status: 429, Origin: true, After: 20 * time.Minute}, 20 * time.Minute, 20 * time.Minute},
		"keys, this device only": {Result{Outcome: Credentials, Status: 403, Reason: "VapidPkHashMismatch"}, 0, 0},
		"this device only":       {Result{Outcome: Wait, Status: 429, After: time.Hour}, 0, 0},
		"one failure":            {Result{Outcome: Wait, Reason: "dial"}, 0, 0},
		"the device is gone":     {Result{Outcome: Gone, Status: 410}, 0, 0},
		"the message is refused": {Result{Outcome: Rejected, Status: 413}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBreakers()
			wait, opened := b.report(admitted(t, b, oneOrigin), test.result)
			if wait < test.low || wait > test.high || opened != (test.high > 0) {
				t.Errorf("left alone for %v, want %v to %v", wait, test.low, test.high)
			}
		})
	}
}

func TestRefusedKeysAreTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		var wait time.Duration
		for range 10 {
			b.report(admitted(t, b, oneOrigin), Result{Outcome: Credentials, Status: 403, Origin: true})
			wait = refuses(t, b, oneOrigin)
			passTime(wait)
		}
		if wait < maxRefusedPause/2 || wait > maxRefusedPause || !b.origins[oneOrigin].refused {
			t.Errorf("left alone for %v", wait)
		}
	})
}

// However many push services fail, few are remembered; one that was not tried for long
// is forgotten.
func TestBreakersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.report(admitted(t, b, oneOrigin), Result{Outcome: Wait, Origin: true, After: time.Hour})
		for i := range 3 * maxOrigins {
			b.report(admitted(t, b, fmt.Sprintf("https://%d.example:443", i)), noAnswerYet)
		}
		if len(b.origins) > maxOrigins {
			t.Errorf("%d breakers", len(b.origins))
		}
		refuses(t, b, oneOrigin) // what matters most is kept
		passTime(time.Hour + forgetAfter + time.Minute)
		admitted(t, b, otherOrigin)
		if b.origins[oneOrigin] != nil {
			t.Error("the breaker of a push service that nothing is sent to is kept")
		}
	})
}

func TestMessagesWithoutABatchAreBounded(t *testing.T) {
	t.Parallel()
	b := newBreakers()
	many := make([]string, maxLooseOfOrigin)
	for i := range many {
		many[i] = oneOrigin
	}
	if !b.loosen(many) {
		t.Fatal("there is room")
	}
	refuses(t, b, oneOrigin)
	admitted(t, b, otherOrigin)
	if b.loosen(make([]string, maxLoose)) {
		t.Error("more than there is room for")
	}
	for _, origin := range many {
		b.answered(origin)
	}
	admitted(t, b, oneOrigin)
	if b.looses != 0 || len(b.loose) != 0 {
		t.Errorf("%d are left", b.looses)
	}
}
