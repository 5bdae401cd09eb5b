package push

import (
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// The pauses of a push service that is left alone: base, doubled with each further one
// until it answers.
const (
	failPause       = time.Second      // of one that does not answer
	maxFailPause    = time.Minute      //
	refusedPause    = 30 * time.Second // of one that refuses our keys
	maxRefusedPause = 5 * time.Minute  //
	maxWait         = time.Hour        // what it asks for is obeyed up to this: then one message finds out
	probeWait       = time.Second      // of those that find a probe under way, or no room
	forgetAfter     = time.Hour        // since the last failure, or the end of the pause
	forgetEvery     = time.Minute      // looks for those
	failuresToOpen  = 5                // in a row
	maxOrigins      = 4096             // that fail and are remembered
)

// The bounds of messages that wait for an answer.
const (
	maxDetached         = 2048            // of a platform, without a batch
	maxDetachedOfOrigin = maxDetached / 4 //
	maxUnproven         = 64              // to all origins that are not proven; half of it to those that failed
	maxUnprovenOfOrigin = maxUnproven / 2 //
	maxProven           = 1024            // origins that are remembered for having accepted messages
	provenFor           = time.Hour       // since the last acceptance
)

// breakers keep the messages away from push services that fail, each apart: one that is
// away costs the deliveries to the others nothing.
//
// A push service that answers has no breaker. The breaker of one that does not is made by
// its first failure, opens after some in a row, or at once when it says so, and while it
// is open nothing is sent. When its time is over it is half open: one message is the
// probe, and the others wait for what becomes of it. An answer deletes the breaker.
//
// Results of messages that were admitted before the breaker opened, or before its probe,
// say nothing about the time since: hundreds fail at once when a connection is cut. They
// are left out, but for a service that asks for still more time.
//
// # Push services that members make up
//
// The push service of a browser is any server that a member names, under as many names as
// the member likes. So an origin of Web Push is proven only while it accepts messages: each
// acceptance counts for it and each failure against it. All that are not proven share a
// small quota of messages in flight, and the breaker of one opens at its first failure. Only
// their breakers are forgotten when there are too many, and that they refuse our keys says
// nothing about these: no metric and no log tells it. Other platforms have few origins,
// which the operator chose: they are always proven.
type breakers struct {
	mu       sync.Mutex
	round    uint64 // counts the openings and the probes of all
	origins  map[string]*breaker
	swept    time.Time // when those that nothing was sent to were last forgotten
	proven   map[string]*proof
	unproven tally               // messages in flight to origins that were not proven when they were sent
	detached map[Platform]*tally // messages in flight that no batch waits for
}

// breaker is what is known of a push service that failed.
type breaker struct {
	platform Platform
	failures int       // in a row, while it is closed
	failed   time.Time // when it last failed
	trips    int       // how often it opened since the last answer
	until    time.Time // it is open until then; zero: it is closed
	probed   time.Time // half open: when the probe was let through; zero: none is under way
	since    uint64    // the round of its last opening or probe
	refused  bool      // it does not take our keys
	alarms   bool      // that is counted: it took them before
}

// lastKnown is when something was last known of the push service.
func (at *breaker) lastKnown() time.Time {
	if at.until.After(at.failed) {
		return at.until
	}
	return at.failed
}

// proof is that an origin of Web Push accepts messages.
type proof struct {
	credit int // acceptances less failures, at most failuresToOpen
	last   time.Time
}

// tally counts messages by origin.
type tally struct {
	of  map[string]int
	all int
}

func (t *tally) add(origin string, n int) {
	t.all += n
	if t.of[origin] += n; t.of[origin] == 0 {
		delete(t.of, origin)
	}
}

// pass is the admission of a message. It ends with report or release.
type pass struct {
	platform Platform
	origin   string
	round    uint64
	unproven bool // breakers.unproven has it
	detached bool // breakers.detached has it
}

func newBreakers() *breakers {
	b := &breakers{
		origins: make(map[string]*breaker), proven: make(map[string]*proof), unproven: tally{of: make(map[string]int)},
		detached: make(map[Platform]*tally),
	}
	for _, p := range Platforms() {
		b.detached[p] = &tally{of: make(map[string]int)}
	}
	return b
}

// admit lets a message through, or says how long to wait, and why: breakerOpen or quota.
func (b *breakers) admit(p Platform, origin string, probeTime time.Duration) (admission pass, wait time.Duration, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.forget(now)
	at := b.origins[origin]
	halfOpen := at != nil && !at.until.IsZero()
	if halfOpen {
		if wait := at.until.Sub(now); wait > 0 {
			return pass{}, wait, breakerOpen
		}
		if !at.probed.IsZero() && now.Sub(at.probed) < probeTime {
			return pass{}, probeWait, breakerOpen
		}
	}
	unproven := !b.isProven(p, origin, now)
	if b.isFull(p, origin, unproven, at != nil) {
		return pass{}, probeWait, quota
	}
	if halfOpen {
		b.round++
		at.probed, at.since = now, b.round
	}
	if unproven {
		b.unproven.add(origin, 1)
	}
	return pass{platform: p, origin: origin, round: b.round, unproven: unproven}, 0, ""
}

// isFull reports whether there are too many messages in flight for one more to an origin.
func (b *breakers) isFull(p Platform, origin string, unproven, failed bool) bool {
	detached := b.detached[p]
	most := maxUnproven
	if failed { // the rest is for those of which nothing is known yet
		most /= 2
	}
	switch {
	case detached.of[origin] >= maxDetachedOfOrigin:
		return true
	case detached.all >= maxDetached && detached.of[origin] > 0: // those that answer in time go on
		return true
	}
	return unproven && (b.unproven.all >= most || b.unproven.of[origin] >= maxUnprovenOfOrigin)
}

// isProven reports whether the origin is known to accept messages.
func (b *breakers) isProven(p Platform, origin string, now time.Time) bool {
	if p != WebPush {
		return true
	}
	known := b.proven[origin]
	return known != nil && now.Sub(known.last) < provenFor
}

// prove takes note that an origin accepted a message.
func (b *breakers) prove(p pass, now time.Time) {
	if p.platform != WebPush {
		return
	}
	known := b.proven[p.origin]
	if known == nil {
		if len(b.proven) >= maxProven {
			var oldest string
			for origin, other := range b.proven {
				if oldest == "" || other.last.Before(b.proven[oldest].last) {
					oldest = origin
				}
			}
			delete(b.proven, oldest)
		}
		known = &proof{}
		b.proven[p.origin] = known
	}
	known.credit, known.last = min(known.credit+1, failuresToOpen), now
}

// doubt takes note that an origin failed.
func (b *breakers) doubt(p pass) {
	if known := b.proven[p.origin]; known != nil {
		known.credit--
		if known.credit <= 0 {
			delete(b.proven, p.origin)
		}
	}
}

// report takes note of what became of a message, and returns for how long its origin is
// left alone from now on.
func (b *breakers) report(p pass, r Result) (wait time.Duration, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(p)
	at := b.origins[p.origin]
	says := evidenceOf(r)
	now := time.Now()
	if r.Outcome == Accepted {
		b.prove(p, now)
	}
	if says == none {
		at.probeAgain(p)
		return 0, false
	}
	if at != nil && p.round < at.since { // before it opened, or was probed
		if says == away && !at.until.IsZero() && at.until.Before(now.Add(min(r.After, maxWait))) {
			at.until = now.Add(min(r.After, maxWait))
		}
		return at.until.Sub(now), false
	}
	if says == alive {
		if at != nil {
			b.remove(p.origin, at)
		}
		return 0, false
	}
	if says != refused { // which is an answer
		b.doubt(p)
	}
	if at == nil {
		at = b.add(p, now)
	}
	at.failures++
	at.failed = now
	var pause time.Duration
	switch {
	case says == refused:
		pause = max(min(r.After, maxWait), retry.Backoff(at.trips+1, refusedPause, maxRefusedPause))
	case says == away:
		pause = max(min(r.After, maxWait), retry.Backoff(at.trips+1, failPause, maxFailPause))
	case at.failures >= failuresToOpen, !at.until.IsZero(), !b.isProven(p.platform, p.origin, now):
		pause = retry.Backoff(at.trips+1, failPause, maxFailPause)
	default:
		return 0, false
	}
	at.refused = says == refused
	b.open(at, now.Add(pause), at.refused && (at.alarms || !p.unproven))
	return pause, true
}

// open opens a breaker. alarms: our keys are refused, by a push service that took them before.
func (b *breakers) open(at *breaker, until time.Time, alarms bool) {
	b.round++
	if at.until.IsZero() {
		breakersOpen.WithLabelValues(string(at.platform)).Inc()
	}
	if alarms != at.alarms {
		at.alarms = alarms
		credentialsRefused.WithLabelValues(string(at.platform)).Add(map[bool]float64{true: 1, false: -1}[alarms])
	}
	at.trips, at.failures, at.until, at.probed, at.since = at.trips+1, 0, until, time.Time{}, b.round
}

// release takes a message back that was let through and of which nothing is known: it was
// cancelled.
func (b *breakers) release(p pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(p)
	b.origins[p.origin].probeAgain(p)
}

// probeAgain lets another message find out, if p was the probe.
func (at *breaker) probeAgain(p pass) {
	if at != nil && at.since == p.round {
		at.probed = time.Time{}
	}
}

// end is the end of a message that was let through.
func (b *breakers) end(p pass) {
	if p.unproven {
		b.unproven.add(p.origin, -1)
	}
	if p.detached {
		b.detached[p.platform].add(p.origin, -1)
	}
}

// detach takes note that the batch of a message waits for it no longer.
func (b *breakers) detach(p *pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.detached = true
	b.detached[p.platform].add(p.origin, 1)
}

// add makes a breaker. If there are too many, that of an origin that is not proven goes, the
// one of which something was known last.
func (b *breakers) add(p pass, now time.Time) *breaker {
	if len(b.origins) >= maxOrigins {
		var first string
		for origin, at := range b.origins {
			if (first == "" || at.lastKnown().Before(b.origins[first].lastKnown())) && !b.isProven(at.platform, origin, now) {
				first = origin
			}
		}
		if first != "" {
			b.remove(first, b.origins[first])
		}
	}
	at := &breaker{platform: p.platform}
	b.origins[p.origin] = at
	return at
}

func (b *breakers) remove(origin string, at *breaker) {
	delete(b.origins, origin)
	if !at.until.IsZero() {
		breakersOpen.WithLabelValues(string(at.platform)).Dec()
	}
	if at.alarms {
		credentialsRefused.WithLabelValues(string(at.platform)).Dec()
	}
}

// forgetKeys removes the breakers of push services of a platform that refuse our keys: there
// are others now.
func (b *breakers) forgetKeys(p Platform) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for origin, at := range b.origins {
		if at.platform == p && at.refused {
			b.remove(origin, at)
		}
	}
}

// forget removes breakers that nothing was sent through for long, so that the gauges do
// not go on to tell of a push service that has no devices here any more, and that failures
// hours apart are not taken for some in a row.
func (b *breakers) forget(now time.Time) {
	if len(b.origins) == 0 || now.Sub(b.swept) < forgetEvery {
		return
	}
	b.swept = now
	for origin, at := range b.origins {
		if now.Sub(at.lastKnown()) > forgetAfter {
			b.remove(origin, at)
		}
	}
}

// evidence is what a result says about the push service.
type evidence int

const (
	alive   evidence = iota // it answers
	none                    // nothing
	failing                 // it may be away
	away                    // it wants to be left alone
	refused                 // it does not take our keys
)

func evidenceOf(r Result) evidence {
	switch r.Outcome {
	case Accepted, Gone, Rejected:
		return alive
	case Credentials, Wait:
		switch {
		case r.Origin && r.Outcome == Credentials:
			return refused
		case r.Origin:
			return away
		case r.Status/100 == 5:
			return failing
		case r.Status != 0: // it answered, about this device
			return alive
		case r.Reason == ReasonGoAway, r.Reason == ReasonRefused:
			return none
		}
	}
	return failing
}
