package push

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/member"
)

const (
	oneOrigin   = "https://one.example:443"
	otherOrigin = "https://other.example:443"
)

// admitted lets a message through, or fails the test.
func admitted(t *testing.T, b *breakers, origin string) pass {
	t.Helper()
	p, wait, _ := b.admit(Device{Platform: APNs}, origin, 20*time.Second)
	if wait > 0 {
		t.Fatalf("%s is left alone for %v", origin, wait)
	}
	return p
}

// refuses fails the test if a message is let through, and returns how long it is to wait.
func refuses(t *testing.T, b *breakers, origin string) time.Duration {
	t.Helper()
	_, wait, why := b.admit(Device{Platform: APNs}, origin, 20*time.Second)
	if wait <= 0 || why != breakerOpen {
		t.Fatalf("%s is not left alone", origin)
	}
	return wait
}

var browsers atomic.Uint64

// browser returns a device of a member of its own.
func browser() Device {
	n := browsers.Add(1)
	return Device{ID: n, Member: member.ID(n), Platform: WebPush}
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
	tripBy(t, b, origin, noAnswerYet)
}

func tripBy(t *testing.T, b *breakers, origin string, r Result) {
	t.Helper()
	for range failuresToOpen {
		b.report(admitted(t, b, origin), r)
	}
}

func TestABreakerOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
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
		b := newBreakers(map[Platform]bool{WebPush: true})
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
		b := newBreakers(map[Platform]bool{WebPush: true})
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
		b := newBreakers(map[Platform]bool{WebPush: true})
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

// One answer holds its own message and no other, unless it asks for that; some in a row hold
// their push service, if they are about it.
func TestPausesByResult(t *testing.T) {
	t.Parallel()
	const no, first = 0, failPause
	for name, test := range map[string]struct {
		result    Result
		one, five time.Duration // for how long the push service is left alone, at most
	}{
		"asked for":                      {Result{Outcome: Wait, Status: 503, Origin: true, After: 15 * time.Minute}, 15 * time.Minute, 15 * time.Minute},
		"asked for, for ever":            {Result{Outcome: Wait, Status: 429, Origin: true, After: 1000 * time.Hour}, maxWait, maxWait},
		"asked for, by one that refuses": {Result{Outcome: Credentials, Status: 429, Origin: true, After: 20 * time.Minute}, 20 * time.Minute, 20 * time.Minute},
		"asked for, of this device":      {Result{Outcome: Wait, Status: 429, After: time.Hour}, no, no},
		"all wait, by its documents":     {Result{Outcome: Wait, Status: 429, Origin: true, Pause: time.Minute}, no, first},
		"an error":                       {Result{Outcome: Wait, Status: 503, Origin: true}, no, first},
		"an error, as of FCM":            {Result{Outcome: Wait, Status: 503, Origin: true, Pause: 10 * time.Second}, no, first},
		"an error, maybe of the message": {Result{Outcome: Wait, Status: 500, Pause: 15 * time.Minute}, no, first},
		"the one in front does not know": {Result{Outcome: Ambiguous, Status: 502}, no, first},
		"keys":                           {Result{Outcome: Credentials, Status: 403, Origin: true}, no, first},
		"keys, of this device":           {Result{Outcome: Credentials, Status: 403, Reason: "VapidPkHashMismatch"}, no, no},
		"no connection":                  {Result{Outcome: Wait, Reason: "dial"}, no, first},
		"an address that is not public":  {Result{Outcome: Wait, Reason: "forbidden_address", Pause: 5 * time.Minute}, no, first},
		"no answer":                      {noAnswerYet, no, first},
		"it was not processed":           {Result{Outcome: Wait, Reason: ReasonGoAway}, no, no},
		"this device waits":              {Result{Outcome: Wait, Status: 429, Pause: time.Hour}, no, no},
		"the device is gone":             {Result{Outcome: Gone, Status: 410}, no, no},
		"the message is refused":         {Result{Outcome: Rejected, Status: 413}, no, no},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, most := range map[int]time.Duration{1: test.one, failuresToOpen: test.five} {
				b := newBreakers(map[Platform]bool{WebPush: true})
				var wait time.Duration
				var opened bool
				for range n {
					wait, opened = b.report(pass{platform: APNs, origin: oneOrigin}, test.result)
				}
				low := most
				if most == first {
					low /= 2 // it differs between processes
				}
				if wait < low || wait > most || most == 0 && opened {
					t.Errorf("left alone for %v after %d, want %v to %v", wait, n, low, most)
				}
			}
		})
	}
}

// No pause is longer, by more than the first one, than the time for which the push service is
// known to fail.
func TestPausesAreNoLongerThanTheEvidenceIsOld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result Result
		most   time.Duration
	}{
		"fails":   {noAnswerYet, maxFailPause},
		"refuses": {Result{Outcome: Credentials, Status: 403, Origin: true}, maxRefusedPause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreakers(map[Platform]bool{WebPush: true})
				began := time.Now()
				longest := time.Duration(0)
				for n := range 30 {
					wait := time.Duration(0)
					for try := 0; wait == 0 && try < failuresToOpen; try++ { // the first time it takes as many
						wait, _ = b.report(admitted(t, b, oneOrigin), test.result)
					}
					if known := time.Since(began); wait <= 0 || wait > known+failPause {
						t.Fatalf("pause %d: left alone for %v, and known to fail for %v", n, wait, known)
					}
					longest = max(longest, wait)
					passTime(wait)
				}
				if longest != test.most {
					t.Errorf("left alone for %v at most, want %v", longest, test.most)
				}
			})
		})
	}
}

// Of the push services that members name, only one that accepted messages here tells by a
// refusal that our keys are wrong.
func TestOnlyProvenOriginsRaiseTheAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		no := Result{Outcome: Credentials, Status: 403, Origin: true}
		const madeUp, known = "https://made-up.example:443", "https://known.example:443"
		refuse := func(origin string) {
			t.Helper()
			opened := false
			for n := 0; !opened; n++ {
				pass, wait, _ := b.admit(browser(), origin, time.Minute)
				if wait > 0 || n == failuresToOpen {
					t.Fatalf("%s is left alone for %v after %d", origin, wait, n)
				}
				_, opened = b.report(pass, no)
			}
		}
		pass, _, _ := b.admit(browser(), known, time.Minute)
		b.report(pass, taken)
		for range 20 { // also when it was long ago that it accepted any
			refuse(known)
			refuse(madeUp)
			if b.origins[madeUp].alarms || !b.origins[known].alarms {
				t.Fatalf("alarms: made up %t, known %t", b.origins[madeUp].alarms, b.origins[known].alarms)
			}
			passTime(maxRefusedPause)
		}
		b.forgetKeys(WebPush)
		if len(b.origins) > 0 {
			t.Errorf("by another key: %v", b.origins)
		}
	})
}

// FCM refuses an access token that is replaced then, and the next one, too: that is no answer
// that the keys are good.
func TestAReplacedTokenEndsNoRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		no := Result{Outcome: Credentials, Status: 401, Origin: true}
		replaced := Result{Outcome: Wait, Status: 401, Pause: time.Second}
		tripBy(t, b, oneOrigin, no)
		longest := time.Duration(0)
		for range 12 {
			wait := refuses(t, b, oneOrigin)
			longest = max(longest, wait)
			passTime(wait)
			b.report(admitted(t, b, oneOrigin), replaced)
			if at := b.origins[oneOrigin]; at == nil || !at.alarms {
				t.Fatalf("the alarm has ended: %+v", at)
			}
			b.report(admitted(t, b, oneOrigin), no) // another one finds out at once
		}
		if longest != maxRefusedPause {
			t.Errorf("left alone for %v at most, want %v", longest, maxRefusedPause)
		}
		for range 2 * failuresToOpen { // of one that takes the new token
			b.report(admitted(t, b, otherOrigin), replaced)
		}
		admitted(t, b, otherOrigin)
	})
}

// With another key all that refused the one before are sent to at once.
func TestAnotherKeyEndsRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		tripBy(t, b, oneOrigin, Result{Outcome: Credentials, Status: 403, Origin: true})
		refuses(t, b, oneOrigin)
		b.forgetKeys(WebPush)
		refuses(t, b, oneOrigin)
		b.forgetKeys(APNs)
		admitted(t, b, oneOrigin)
	})
}

// Messages that were not processed, as the push service says when it closes a connection, are
// no failures of it, and a probe among them found nothing out.
func TestWhatWasNotProcessedIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		for _, reason := range []string{ReasonGoAway, ReasonRefused} {
			for range 10 * failuresToOpen {
				b.report(admitted(t, b, oneOrigin), Result{Outcome: Wait, Reason: reason})
			}
		}
		trip(t, b, oneOrigin)
		passTime(refuses(t, b, oneOrigin))
		b.report(admitted(t, b, oneOrigin), Result{Outcome: Wait, Reason: ReasonGoAway})
		b.report(admitted(t, b, oneOrigin), taken)
		admitted(t, b, oneOrigin)
	})
}

// A push service that answers each message with an error fails, for however long each of
// these messages is to wait.
func TestServerErrorsAreFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		for range failuresToOpen {
			b.report(admitted(t, b, oneOrigin), Result{Outcome: Wait, Status: 503, After: 15 * time.Minute})
		}
		if wait := refuses(t, b, oneOrigin); wait > failPause {
			t.Errorf("left alone for %v", wait)
		}
	})
}

// webAdmits lets messages to an origin of Web Push through until it does not, or so many are.
func webAdmits(b *breakers, origin string, most int) (all []pass) {
	for len(all) < most {
		p, wait, _ := b.admit(browser(), origin, 20*time.Second)
		if wait > 0 {
			break
		}
		all = append(all, p)
	}
	return all
}

// However many push services fail, few are remembered; one that was not tried for long
// is forgotten. Those that accept messages are not pushed out: each failure of theirs counts.
func TestBreakersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		fails := func(origin string, r Result) {
			for _, p := range webAdmits(b, origin, 1) {
				b.report(p, r)
			}
		}
		for range failuresToOpen {
			fails(otherOrigin, taken)
		}
		fails(oneOrigin, Result{Outcome: Wait, Origin: true, After: time.Hour})
		next := 0
		many := func(n int) {
			for range n {
				next++
				fails(fmt.Sprintf("https://%d.example:443", next), noAnswerYet)
			}
			if len(b.origins) > maxOrigins {
				t.Errorf("%d breakers", len(b.origins))
			}
		}
		many(maxOrigins + 100)
		refuses(t, b, oneOrigin) // what matters most is kept
		for range failuresToOpen {
			fails(otherOrigin, noAnswerYet)
			many(10)
		}
		if at := b.origins[otherOrigin]; at != nil && at.failures > 0 {
			t.Errorf("it failed in a row, and its breaker is closed: %+v", at)
		}
		if b.isProven(WebPush, otherOrigin, time.Now()) || b.isProven(WebPush, oneOrigin, time.Now()) {
			t.Error("a push service that fails is proven")
		}
		passTime(time.Hour + forgetAfter + forgetEvery)
		admitted(t, b, otherOrigin)
		if len(b.origins) != 0 {
			t.Errorf("%d breakers of push services that nothing is sent to are kept", len(b.origins))
		}
	})
}

// Failures with long times between them are not some in a row.
func TestRareFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		for range 3 * failuresToOpen {
			b.report(admitted(t, b, oneOrigin), noAnswerYet)
			passTime(forgetAfter + forgetEvery)
		}
		admitted(t, b, oneOrigin)
		if len(b.origins) != 0 {
			t.Errorf("%d breakers are kept", len(b.origins))
		}
	})
}

// All push services that accepted nothing lately share a few messages in flight.
func TestUnprovenOriginsShareAQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		origin := func(i int) string { return fmt.Sprintf("https://%d.example:443", i) }
		all := webAdmits(b, origin(0), maxUnproven)
		if len(all) != maxUnprovenOfOrigin {
			t.Errorf("%d messages to one", len(all))
		}
		for i := range 10 * maxUnproven {
			all = append(all, webAdmits(b, origin(i+1), 1)...)
		}
		if len(all) != maxUnproven {
			t.Errorf("%d messages to all", len(all))
		}
		if _, wait, why := b.admit(browser(), oneOrigin, time.Minute); wait != probeWait || why != quota {
			t.Errorf("wait %v for %q", wait, why)
		}
		admitted(t, b, oneOrigin) // of APNs
		b.report(all[0], taken)
		if n := len(webAdmits(b, origin(0), 1000)); n != 1000 {
			t.Errorf("%d messages to one that is proven", n)
		}
		for _, p := range all[1:] {
			b.report(p, noAnswerYet)
		}
		if b.unproven.origins.all != 0 || len(b.unproven.origins.of)+len(b.unproven.members.of)+len(b.unproven.devices.of) != 0 {
			t.Errorf("%+v is left", b.unproven)
		}
		passTime(maxFailPause)
		var again []pass // those that failed get the half: the rest is for new ones
		for i := range 10 * maxUnproven {
			again = append(again, webAdmits(b, origin(i+1), 1000)...)
		}
		failed := map[string]bool{}
		for _, p := range all {
			failed[p.origin] = true
		}
		first := 0
		for _, p := range again {
			if failed[p.origin] {
				first++
			}
		}
		if first == 0 || first > maxUnproven/2 || len(again) != maxUnproven {
			t.Errorf("%d messages, %d of these to those that failed", len(again), first)
		}
	})
}

// Of the quota, a member has a share and a device one message. What waits for the share of a
// member has turns, each later than the one before. It counts messages to push services that are proven, too, if no
// batch waits for them: they hold up others to push services that owe an answer, and to no others.
func TestAMemberHasAShareOfTheQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		devices := uint64(0)
		admit := func(of member.ID) (pass, time.Duration) {
			devices++
			d := Device{ID: devices, Member: of, Platform: WebPush}
			p, wait, why := b.admit(d, fmt.Sprintf("https://%d.example:443", devices), 20*time.Second)
			if wait > 0 && why != quota {
				t.Errorf("waits for %q", why)
			}
			return p, wait
		}
		var all []pass
		for range maxUnansweredOfMember {
			p, wait := admit(1)
			if wait > 0 {
				t.Fatalf("%d of a member, and the next one waits %v", len(all), wait)
			}
			all = append(all, p)
		}
		for i := range all {
			b.detach(&all[i], true)
		}
		const each = 10 * time.Second / maxUnansweredOfMember
		for i := range 10 {
			if _, wait := admit(1); wait != time.Duration(i+1)*each {
				t.Errorf("turn %d: %v", i, wait)
			}
		}
		for range maxTurn / each {
			admit(1)
		}
		if _, wait := admit(1); wait != maxTurn {
			t.Errorf("the last turn: %v", wait)
		}
		if _, wait := admit(2); wait > 0 {
			t.Errorf("another member waits %v", wait)
		}
		if _, wait, why := b.admit(Device{ID: devices, Member: 2, Platform: WebPush}, oneOrigin, 20*time.Second); wait != probeWait || why != quota {
			t.Errorf("another message to the same device waits %v for %q", wait, why)
		}
		if about := fmt.Sprint(b.standing()); about != "[in_flight 9 member 1 of_member 8 origin https://1.example:443 of_origin 1]" {
			t.Errorf("whose they are: %s", about)
		}
		passTime(maxUnansweredOfMember * each)
		for _, p := range all {
			b.report(p, noAnswerYet)
		}
		if _, wait := admit(1); wait > 0 {
			t.Errorf("when they are given up: %v", wait)
		}

		var late []pass
		send := func(of member.ID, origin string) (pass, time.Duration) {
			devices++
			p, wait, _ := b.admit(Device{ID: devices, Member: of, Platform: WebPush}, origin, 20*time.Second)
			return p, wait
		}
		for _, origin := range []string{oneOrigin, otherOrigin} {
			p, _ := send(9, origin)
			b.report(p, taken)
		}
		for range maxUnansweredOfMember + 2 { // all of one batch
			p, wait := send(3, oneOrigin)
			if wait > 0 {
				t.Errorf("to one that is proven: %v", wait)
			}
			late = append(late, p)
		}
		for i := range late {
			b.detach(&late[i], true)
		}
		if _, wait := send(3, oneOrigin); wait != probeWait {
			t.Errorf("to one that owes an answer: %v", wait)
		}
		for origin, of := range map[string]member.ID{oneOrigin: 4, otherOrigin: 3} {
			p, wait := send(of, origin)
			if wait > 0 {
				t.Errorf("of member %d to %s: %v", of, origin, wait)
			}
			b.release(p)
		}
		for _, p := range late {
			b.release(p)
		}
		if _, wait := send(3, oneOrigin); wait > 0 || len(b.unproven.members.of) != 2 { // admit's two
			t.Errorf("when they have ended: %v, %v", wait, b.unproven.members.of)
		}
	})
}

// However the messages of a member to origins that are not proven end, and however soon, it has no more of
// them than if none were answered; and others have theirs.
func TestAnswersAtOnceAreNoLargerShare(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]Result{
		"reset": {Outcome: Ambiguous, Reason: "reset"}, "503": {Outcome: Wait, Status: 503, Reason: "status 503"},
		"gone": {Outcome: Gone, Status: 410}, "accepted": taken,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreakers(map[Platform]bool{WebPush: true})
				let := func(of member.ID) (n int) {
					for range 50 { // push services, each of them new
						d := browser()
						d.Member = of
						if p, wait, _ := b.admit(d, fmt.Sprintf("https://%d.example:443", d.ID), 20*time.Second); wait <= 0 {
							n++
							b.report(p, result)
						}
					}
					return n
				}
				if n := let(1); n != maxUnansweredOfMember {
					t.Errorf("%d at once", n)
				}
				if n := let(2); n != maxUnansweredOfMember {
					t.Errorf("%d of another member", n)
				}
				n := 0
				for range 100 * time.Second / (100 * time.Millisecond) {
					passTime(100 * time.Millisecond)
					n += let(1)
				}
				if n != 100*maxUnansweredOfMember/10 {
					t.Errorf("%d in 100 s", n)
				}
				passTime(maxTurn + forgetEvery)
				if n := let(3); n != maxUnansweredOfMember || len(b.freeAt) != 1 || len(b.turns) != 1 {
					t.Errorf("%d, and %d and %d are remembered", n, len(b.freeAt), len(b.turns))
				}
			})
		})
	}
}

// An origin is proven by acceptances, and only as long as it does not fail as often.
func TestProofsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(map[Platform]bool{WebPush: true})
		proven := func(want bool) {
			t.Helper()
			if b.isProven(WebPush, oneOrigin, time.Now()) != want {
				t.Errorf("proven: %v", !want)
			}
		}
		report := func(r Result) {
			t.Helper()
			for _, p := range webAdmits(b, oneOrigin, 1) {
				b.report(p, r)
				return
			}
			t.Error("it is left alone")
		}
		proven(false)
		report(Result{Outcome: Gone, Status: 410})
		proven(false)
		report(taken)
		proven(true)
		report(noAnswerYet) // as often as it accepted
		proven(false)
		passTime(failPause)
		for range 100 {
			report(taken)
		}
		for range failuresToOpen - 1 {
			report(noAnswerYet)
			proven(true)
		}
		report(noAnswerYet)
		proven(false)
		passTime(failPause)
		report(taken)
		proven(true)
		passTime(provenFor)
		proven(false)
		for i := range 2 * maxProven {
			for _, p := range webAdmits(b, fmt.Sprintf("https://%d.example:443", i), 1) {
				b.report(p, taken)
			}
			report(taken) // the one that accepts most lately is kept
		}
		proven(true)
		if len(b.proven) > maxProven {
			t.Errorf("%d proofs", len(b.proven))
		}
	})
}

func TestMessagesWithoutABatchAreBounded(t *testing.T) {
	t.Parallel()
	b := newBreakers(map[Platform]bool{WebPush: true})
	var all []pass
	detach := func(origin string, n int) {
		for range n {
			p := admitted(t, b, origin)
			b.detach(&p, true)
			all = append(all, p)
		}
	}
	waits := func(p Platform, origin string, want bool) {
		t.Helper()
		admission, wait, why := b.admit(Device{Platform: p}, origin, time.Minute)
		if (wait > 0) != want || (why == quota) != want {
			t.Errorf("%s of %s waits %v for %q", origin, p, wait, why)
		}
		if wait == 0 {
			b.release(admission)
		}
	}
	detach(oneOrigin, maxDetachedOfOrigin)
	waits(APNs, oneOrigin, true)
	waits(APNs, otherOrigin, false)
	for i := range maxDetached/maxDetachedOfOrigin - 1 {
		detach(fmt.Sprint("https://", i), maxDetachedOfOrigin-1)
	}
	detach("https://last", maxDetached-len(all))
	waits(APNs, "https://0", true)
	waits(APNs, otherOrigin, false) // it answers in time
	waits(FCM, "https://0", false)  // each platform has its own
	for _, p := range all {
		b.report(p, taken)
	}
	waits(APNs, oneOrigin, false)
	if d := b.detached[APNs]; d.all != 0 || len(d.of) != 0 {
		t.Errorf("%+v are left", d)
	}
}
