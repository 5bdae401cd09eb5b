package push

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/activityd/activityd/internal/member"
)

const (
	hangingOrigin = "https://hangs.example:443"
	honestOrigin  = "https://honest.example:443"

	onPhones Platform = "origins_test"
)

var (
	unanswered = Result{Outcome: Ambiguous, Reason: "timeout"}
	accepted   = Result{Outcome: Accepted, Status: 200}
)

// inBubble runs a test with a time of its own.
func inBubble(t *testing.T, f func(t *testing.T, o *origins)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newOrigins(slog.New(slog.DiscardHandler))) })
}

func valueOf(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func sleep(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble

// goes lets a message go, or fails the test.
func (o *origins) goes(t *testing.T, name string, m member.ID) *visit {
	t.Helper()
	v, wait := o.admit(onPhones, name, m)
	if v == nil {
		t.Fatalf("a message to %s has to wait for %v", name, wait)
	}
	return v
}

// waits fails the test if a message may go.
func (o *origins) waits(t *testing.T, name string, m member.ID) time.Duration {
	t.Helper()
	v, wait := o.admit(onPhones, name, m)
	if v != nil || wait <= 0 {
		t.Fatalf("a message to %s may go", name)
	}
	return wait
}

// A push service that fails for five messages in a row is left alone, ever longer; then one message finds out.
func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, o *origins) {
		for i := range failuresInARow {
			if left := o.report(o.goes(t, hangingOrigin, 1), unanswered); (left > 0) != (i == failuresInARow-1) {
				t.Fatalf("after %d failures it is left alone for %v", i+1, left)
			}
		}
		asked := 0
		for began := time.Now(); time.Since(began) < time.Hour; {
			sleep(o.waits(t, hangingOrigin, 1))
			probe := o.goes(t, hangingOrigin, 1)
			asked++
			o.waits(t, hangingOrigin, 2) // while the probe is under way
			if left := o.report(probe, unanswered); left > longestPause {
				t.Fatalf("left alone for %v", left)
			}
		}
		if asked < 60 || asked > 70 {
			t.Errorf("it was asked %d times in an hour", asked)
		}
		if n := valueOf(t, breakersOpen.WithLabelValues(string(onPhones))); n < 1 {
			t.Errorf("%v open breakers are counted", n)
		}
		o.report(o.goes(t, honestOrigin, 1), accepted) // the failures of a push service are its own
		sleep(longestPause)
		o.report(o.goes(t, hangingOrigin, 1), accepted)
		for range 4 * failuresInARow { // failures with answers between them are none in a row
			o.report(o.goes(t, hangingOrigin, 1), unanswered)
			o.report(o.goes(t, hangingOrigin, 1), accepted)
		}
	})
}

// A message that left before a breaker opened says nothing about the time since.
func TestOldResultsSayNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, o *origins) {
		var before []*visit
		for i := range 50 {
			before = append(before, o.goes(t, hangingOrigin, member.ID(i+1)))
		}
		for _, v := range before[:20] {
			o.report(v, unanswered)
		}
		sleep(firstPause)
		probe := o.goes(t, hangingOrigin, 1)
		for _, v := range before[20:40] { // neither do they open it again nor close it
			o.report(v, unanswered)
		}
		o.report(before[40], accepted)
		o.waits(t, hangingOrigin, 1)
		o.report(probe, accepted)
		o.report(before[41], Result{Outcome: Gone, Status: 410})
		o.goes(t, hangingOrigin, 1)
	})
}

// A push service that asks for time by Retry-After is asked again too soon by the messages in flight only.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Result{
		"unavailable": {Outcome: Wait, Status: 503, After: 5 * time.Second, Origin: true},
		"credentials": {Outcome: Credentials, Status: 403, After: 5 * time.Second, Origin: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, o *origins) {
				first, second, third := o.goes(t, hangingOrigin, 1), o.goes(t, hangingOrigin, 2), o.goes(t, hangingOrigin, 3)
				o.report(first, r)
				for began := time.Now(); time.Since(began) < 5*time.Second; sleep(100 * time.Millisecond) {
					o.waits(t, hangingOrigin, 4)
				}
				probe := o.goes(t, hangingOrigin, 4)
				o.report(second, r) // it asks for more
				o.report(probe, accepted)
				if wait := o.waits(t, hangingOrigin, 4); wait != 5*time.Second {
					t.Errorf("it is left alone for %v", wait)
				}
				sleep(5 * time.Second)
				o.report(o.goes(t, hangingOrigin, 4), accepted)
				o.report(third, accepted)
				o.goes(t, hangingOrigin, 4)
			})
		})
	}
	inBubble(t, func(t *testing.T, o *origins) { // for an hour at most
		o.report(o.goes(t, hangingOrigin, 1), Result{Outcome: Wait, Status: 503, After: 24 * time.Hour, Origin: true})
		if wait := o.waits(t, hangingOrigin, 1); wait != longestAsked {
			t.Errorf("it is left alone for %v", wait)
		}
	})
	inBubble(t, func(t *testing.T, o *origins) { // an answer about a device holds up that device
		o.report(o.goes(t, hangingOrigin, 1), Result{Outcome: Wait, Status: 429, After: time.Hour})
		o.goes(t, hangingOrigin, 1)
	})
}

// Three hundred messages of one member, to a push service that hangs, leave room for other members, and elsewhere. A push service
// with many messages takes no more until some have ended; it is forgotten an hour after the last.
func TestUnansweredMessagesAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, o *origins) {
		var sent []*visit
		for range 300 {
			if v, wait := o.admit(onPhones, hangingOrigin, 1); v != nil {
				sent = append(sent, v)
			} else if wait != crowdedPause {
				t.Fatalf("it has to wait for %v", wait)
			}
		}
		if len(sent) != maxOfMember {
			t.Errorf("%d are in flight, want %d", len(sent), maxOfMember)
		}
		o.report(o.goes(t, honestOrigin, 1), accepted)
		for m := range maxOfOrigin - len(sent) {
			sent = append(sent, o.goes(t, hangingOrigin, member.ID(m+2)))
		}
		o.waits(t, hangingOrigin, 5000) // it is full
		o.release(sent[0])
		o.release(o.goes(t, hangingOrigin, 1))
		o.report(o.goes(t, hangingOrigin, 5000), accepted)
		for _, v := range sent[1:] {
			o.release(v)
		}
		if at := o.all[place{onPhones, hangingOrigin}]; at.inFlight+len(at.of) > 0 {
			t.Errorf("%+v", at)
		}
		sleep(2 * forgetOriginsIn)
		o.release(o.goes(t, honestOrigin, 1))
		if len(o.all) != 1 {
			t.Errorf("%d push services are known", len(o.all))
		}
	})
}

// A probe that did not leave is no probe.
func TestProbeThatDidNotLeave(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, o *origins) {
		for range failuresInARow {
			o.report(o.goes(t, hangingOrigin, 1), unanswered)
		}
		sleep(firstPause)
		o.release(o.goes(t, hangingOrigin, 1))
		o.report(o.goes(t, hangingOrigin, 1), Result{Outcome: Wait, Status: 401}) // of a token that is replaced
		o.goes(t, hangingOrigin, 1)
	})
}

// Refusals of one member's devices hold up nobody, as they may be made up; refusals of several do, but not on another platform
// that has the same host.
func TestRefusalsOfOneMember(t *testing.T) {
	t.Parallel()
	refusal := Result{Outcome: Credentials, Status: 403, Origin: true}
	inBubble(t, func(t *testing.T, o *origins) {
		for range 4 * failuresInARow {
			o.report(o.goes(t, hangingOrigin, 1), refusal)
		}
		for m := range member.ID(failuresInARow - mostRefusals) {
			o.report(o.goes(t, hangingOrigin, 2+m), refusal)
		}
		o.waits(t, hangingOrigin, 9)
		for range failuresInARow {
			v, wait := o.admit("other_test", hangingOrigin, 9)
			if v == nil {
				t.Fatalf("a message of another platform has to wait for %v", wait)
			}
			o.report(v, accepted)
		}
		o.waits(t, hangingOrigin, 9)
	})
}

// New keys end the pauses of push services that refused the keys before.
func TestOtherKeysAreTried(t *testing.T) {
	t.Parallel()
	refusal := Result{Outcome: Credentials, Status: 403, Origin: true}
	inBubble(t, func(t *testing.T, o *origins) {
		old := o.goes(t, hangingOrigin, 1)
		for i := range failuresInARow {
			o.report(o.goes(t, hangingOrigin, member.ID(i+1)), refusal)
			o.report(o.goes(t, honestOrigin, 1), unanswered)
		}
		if n := valueOf(t, credentialsRefused.WithLabelValues(string(onPhones))); n < 1 {
			t.Errorf("%v refusals are counted", n)
		}
		o.forgetKeys("other")
		o.waits(t, hangingOrigin, 1)
		o.forgetKeys(onPhones)
		for range 2 * failuresInARow {
			o.report(old, refusal)
			old = o.goes(t, hangingOrigin, 1)
			old.round--
		}
		o.waits(t, honestOrigin, 1)
	})
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		r    Result
		want evidence
	}{
		{accepted, alive},
		{Result{Outcome: Gone, Status: 410}, alive},
		{Result{Outcome: Rejected, Status: 400}, alive},
		{Result{Outcome: Credentials, Status: 403, Origin: true}, refused},
		{Result{Outcome: Credentials, Status: 401}, alive},
		{Result{Outcome: Wait, Status: 429}, alive},
		{Result{Outcome: Wait, Status: 429, Origin: true}, failing},
		{Result{Outcome: Wait, Status: 500}, failing},
		{Result{Outcome: Wait, Status: 401}, none},
		{Result{Outcome: Wait, Reason: "dial"}, failing},
		{Result{Outcome: Wait, Reason: ReasonHeld}, none},
		{unanswered, failing},
	} {
		if got := evidenceOf(test.r); got != test.want {
			t.Errorf("%+v: %v, want %v", test.r, got, test.want)
		}
	}
}
