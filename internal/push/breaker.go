package push

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
)

// How long a push service is left alone, or a message waits.
const (
	failPause       = time.Second     // the first pause, at most; doubled with each further one until it answers
	maxFailPause    = time.Minute     // of one that does not answer
	longFailPause   = 10 * failPause  // from which on one that is not proven has failed for long
	maxRefusedPause = 5 * time.Minute // of one that refuses our keys
	maxWait         = time.Hour       // what it asks for is obeyed up to this: then one message finds out
	probeWait       = time.Second     // of those that find a probe under way, or no room: at least
	maxTurn         = 5 * time.Minute // of those that find no room: at most
	forgetAfter     = time.Hour       // since the last failure, or the end of the pause
	forgetEvery     = time.Minute     // looks for those
	failuresToOpen  = 5               // in a row
	maxOrigins      = 4096            // that fail and are remembered
)

// The bounds of messages that wait for an answer.
const (
	maxDetached           = 2048            // of a platform, without a batch
	maxDetachedOfOrigin   = maxDetached / 4 //
	maxUnproven           = 512             // to all origins that are not proven; half of it to those that failed
	maxUnprovenOfOrigin   = 32              //
	maxUnansweredOfMember = 8               // of browsers: to origins that are not proven, or that its batch did not wait for
	maxProven             = 1024            // origins that are remembered for having accepted messages
	provenFor             = time.Hour       // since the last acceptance
)

// breakers keep the messages away from push services that fail, each apart: one that is
// away costs the deliveries to the others nothing.
//
// A push service that answers has no breaker. The breaker of one that does not is made by
// its first failure, opens after some in a row, and while it is open nothing is sent. When
// its time is over it is half open: one message is the probe, and the others wait for what
// becomes of it. An answer deletes the breaker.
//
// Results of messages that were admitted before the breaker opened, or before its probe,
// say nothing about the time since: hundreds fail at once when a connection is cut. They
// are left out, but for a service that asks for still more time.
//
// # What one answer holds
//
// One answer, or none in time, holds its own message, unless the push service asks that all
// wait: then it is obeyed, for maxWait at most. So a server that fails for two messages in a
// hundred delays two in a hundred. The first pause is failPause at most, and each is twice the
// one before: so none is longer than all before it and failPause together, and what waits is
// late by at most twice the time for which the push service was away. classify.go of each
// sender has the rules of its platform.
//
// # Push services that members make up
//
// The push service of a browser is any server that a member names, under as many names as
// the member likes. So an origin of Web Push, or of another platform that is [Kind].ByMembers, is
// proven only while it accepts messages: each acceptance counts for it and each failure against it. All that are not proven share a
// small quota of messages in flight, and the breaker of one opens at its first failure. Only
// their breakers are forgotten when there are too many, and that they refuse our keys says
// nothing about these: no metric and no log tells it. Other platforms have few origins,
// which the operator chose: they are always proven.
//
// Of the quota, a device has one message and a member a small share, which holds for its messages to
// origins that accepted others and owe an answer, too: so it takes as many made up members to fill
// the quota as there are shares. A message to an origin that is not proven uses up its part of the
// share as if it were never answered, whatever becomes of it: one that fails at once takes a connection
// and two handshakes of it, and hundreds of those a second take the processor from all others. What finds no room in the
// share of its member is given turns: each as much later than the one before as a place takes to be
// free. So thousands that wait look for it as often as there is one, and not once a second each.
type breakers struct {
	byMembers map[Platform]bool

	mu       sync.Mutex
	round    uint64 // counts the openings and the probes of all
	origins  map[string]*breaker
	swept    time.Time // when those that nothing was sent to were last forgotten
	proven   map[string]*proof
	unproven crowd
	freeAt   map[member.ID]time.Time     // when the share of a member is free again, by what was let through
	turns    map[member.ID]time.Time     // of the last that waits for the share of a member
	detached map[Platform]*tally[string] // messages in flight that no batch waits for, by origin
	silent   map[string]bool             // origins that have answered nothing since one of these was sent
	answers  map[string]uint64           // by origin, of some
}

// crowd is the messages in flight to origins that were not proven when they were sent.
type crowd struct {
	origins tally[string]
	devices tally[uint64]
	members tally[member.ID] // and those to other origins of browsers that no batch waits for
}

func (c *crowd) add(p pass, n int) {
	c.origins.add(p.origin, n)
	c.members.add(p.member, n)
	c.devices.add(p.device, n)
	_, ofMember := c.members.most()
	_, ofOrigin := c.origins.most()
	for of, n := range map[string]int{ofAll: c.origins.all, ofOneMember: ofMember, ofOneOrigin: ofOrigin} {
		unprovenInFlight.WithLabelValues(of).Set(float64(n))
	}
}

// breaker is what is known of a push service that failed.
type breaker struct {
	platform Platform
	failures int           // in a row, while it is closed
	failed   time.Time     // when it last failed
	pause    time.Duration // the last one that it was left alone for unasked, since the last answer
	until    time.Time     // it is open until then; zero: it is closed
	probed   time.Time     // half open: when the probe was let through; zero: none is under way
	since    uint64        // the round of its last opening or probe
	refused  bool          // it does not take our keys
	alarms   bool          // that is counted: it took them before
}

// lastKnown is when something was last known of the push service.
func (at *breaker) lastKnown() time.Time {
	if at.until.After(at.failed) {
		return at.until
	}
	return at.failed
}

// proof is that an origin that a member named accepts messages.
type proof struct {
	credit int // acceptances less failures, at most failuresToOpen
	last   time.Time
}

// tally counts messages by what they have in common.
type tally[K cmp.Ordered] struct {
	of  map[K]int
	all int
}

func newTally[K cmp.Ordered]() tally[K] { return tally[K]{of: make(map[K]int)} }

func (t *tally[K]) add(key K, n int) {
	t.all += n
	if t.of[key] += n; t.of[key] == 0 {
		delete(t.of, key)
	}
}

// most returns the key of the most messages, and how many these are.
func (t *tally[K]) most() (key K, n int) {
	for k, of := range t.of {
		if of > n || of == n && k < key {
			key, n = k, of
		}
	}
	return key, n
}

// pass is the admission of a message. It ends with report or release.
type pass struct {
	platform Platform
	origin   string
	member   member.ID
	device   uint64
	round    uint64
	answers  uint64 // of its origin by then
	unproven bool   // breakers.unproven has it
	unlikely bool   // nothing says that it will be answered soon
	byMember bool   // its platform is of those whose push services members name
	detached bool   // breakers.detached has it
	vain     bool   // it is none, as its origin is not proven and has failed for long
}

func newBreakers(byMembers map[Platform]bool) *breakers {
	return &breakers{
		byMembers: byMembers, origins: make(map[string]*breaker), proven: make(map[string]*proof),
		freeAt: make(map[member.ID]time.Time), turns: make(map[member.ID]time.Time),
		unproven: crowd{origins: newTally[string](), members: newTally[member.ID](), devices: newTally[uint64]()},
		detached: make(map[Platform]*tally[string]), silent: make(map[string]bool), answers: make(map[string]uint64),
	}
}

// detachedOf returns the messages to a platform that no batch waits for.
func (b *breakers) detachedOf(p Platform) *tally[string] {
	if b.detached[p] == nil {
		none := newTally[string]()
		b.detached[p] = &none
	}
	return b.detached[p]
}

// admit lets a message to a device through, or says how long to wait, and why: breakerOpen or
// quota. A message is given up half of probeTime after it was sent.
func (b *breakers) admit(d Device, origin string, probeTime time.Duration) (admission pass, wait time.Duration, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.forget(now)
	at := b.origins[origin]
	unproven := !b.isProven(d.Platform, origin, now)
	halfOpen := at != nil && !at.until.IsZero()
	if halfOpen {
		left := pass{vain: unproven && !at.refused && at.pause >= longFailPause}
		if wait := at.until.Sub(now); wait > 0 {
			return left, wait, breakerOpen
		}
		if took := now.Sub(at.probed); !at.probed.IsZero() && took < probeTime {
			wait := probeWait
			if unproven { // it is as one that never answers
				wait = max(wait, probeTime/2-took)
			}
			return left, wait, breakerOpen
		}
	}
	if wait := b.room(d, origin, unproven, at != nil, probeTime/2); wait > 0 {
		return pass{}, wait, quota
	}
	if halfOpen {
		b.round++
		at.probed, at.since = now, b.round
	}
	admission = pass{
		platform: d.Platform, origin: origin, member: d.Member, device: d.ID, round: b.round, answers: b.answers[origin],
		unproven: unproven, unlikely: unproven || b.silent[origin], byMember: b.byMembers[d.Platform],
	}
	if unproven {
		b.unproven.add(admission, 1)
		b.use(d.Member, probeTime/2)
	}
	return admission, 0, ""
}

// room returns how long one more message to an origin has to wait because there are too many in
// flight; 0: there is room. Each is given up after a timeout.
func (b *breakers) room(d Device, origin string, unproven, failed bool, timeout time.Duration) time.Duration {
	detached := b.detachedOf(d.Platform)
	most := maxUnproven
	if failed { // the rest is for those of which nothing is known yet
		most /= 2
	}
	full := b.unproven.members.of[d.Member] >= maxUnansweredOfMember || unproven && b.untilFree(d.Member, timeout) > 0
	switch {
	case detached.of[origin] >= maxDetachedOfOrigin:
		return probeWait
	case detached.all >= maxDetached && detached.of[origin] > 0: // those that answer in time go on
		return probeWait
	case full && (unproven || b.byMembers[d.Platform] && b.silent[origin]):
		return b.turn(d.Member, timeout)
	case !unproven:
		return 0
	case b.unproven.devices.of[d.ID] == 0 && b.unproven.origins.of[origin] < maxUnprovenOfOrigin && b.unproven.origins.all < most:
		return 0
	case b.silent[origin]: // those before it will be given up
		return timeout
	}
	return probeWait
}

// use takes note that a message of a member to an origin that is not proven was let through.
func (b *breakers) use(share member.ID, timeout time.Duration) {
	now := time.Now()
	b.freeAt[share] = now.Add(max(b.freeAt[share].Sub(now), 0) + timeout/maxUnansweredOfMember)
}

// untilFree returns how long it is until another message of a member may be let through to an origin that is
// not proven, by those before it; at most 0: it may now. From a free share, maxUnansweredOfMember are at once.
func (b *breakers) untilFree(share member.ID, timeout time.Duration) time.Duration {
	return max(time.Until(b.freeAt[share]), 0) - timeout + timeout/maxUnansweredOfMember
}

// turn returns how long the next message has to wait that waits for the share of a member.
func (b *breakers) turn(of member.ID, timeout time.Duration) time.Duration {
	now := time.Now()
	wait := min(max(b.turns[of].Sub(now)+timeout/maxUnansweredOfMember, b.untilFree(of, timeout), probeWait), maxTurn)
	b.turns[of] = now.Add(wait)
	return wait
}

// standing says whose messages take the quota of origins that are not proven: those of a member
// and of an origin that have the most, and how many all are. It is empty if batches wait for all.
func (b *breakers) standing() (about []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	standing := 0
	for p := range b.byMembers {
		standing += b.detachedOf(p).all
	}
	if standing == 0 {
		return nil
	}
	one, ofMember := b.unproven.members.most()
	origin, ofOrigin := b.unproven.origins.most()
	return []any{"in_flight", b.unproven.origins.all, "member", one, "of_member", ofMember, "origin", origin, "of_origin", ofOrigin}
}

// isProven reports whether the origin is known to accept messages.
func (b *breakers) isProven(p Platform, origin string, now time.Time) bool {
	if !b.byMembers[p] {
		return true
	}
	known := b.proven[origin]
	return known != nil && now.Sub(known.last) < provenFor
}

// accepts reports whether any push service of browsers accepted a message lately. If none did, it may
// be our network that is away.
func (b *breakers) accepts() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, known := range b.proven {
		if time.Since(known.last) < provenFor {
			return true
		}
	}
	return false
}

// prove takes note that an origin accepted a message.
func (b *breakers) prove(p pass, now time.Time) {
	if !b.byMembers[p.platform] {
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
	says, asked := evidenceOf(r), r.asked()
	if r.Outcome == Accepted || r.Status != 0 {
		b.answer(p.origin)
	}
	now := time.Now()
	if r.Outcome == Accepted {
		b.prove(p, now)
	}
	if says == none {
		at.probeAgain(p)
		return 0, false
	}
	if at != nil && p.round < at.since { // before it opened, or was probed
		if asked > 0 && !at.until.IsZero() && at.until.Before(now.Add(asked)) {
			at.until = now.Add(asked)
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
	at.refused = says == refused
	wait = asked
	switch {
	case asked > 0:
	case at.failures >= failuresToOpen, !at.until.IsZero(), !b.isProven(p.platform, p.origin, now):
		wait = at.nextPause()
	default:
		return 0, false
	}
	b.open(at, now.Add(wait), at.refused && (at.alarms || !p.unproven))
	return wait, true
}

// nextPause returns for how long a push service that fails, and does not ask, is left alone. The
// first pause is random, so that processes do not probe at the same time.
func (at *breaker) nextPause() time.Duration {
	most := maxFailPause
	if at.refused {
		most = maxRefusedPause
	}
	at.pause = min(max(2*at.pause, retry.Jitter(failPause)), most)
	return at.pause
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
	at.failures, at.until, at.probed, at.since = 0, until, time.Time{}, b.round
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
	switch {
	case p.unproven:
		b.unproven.add(p, -1)
	case p.detached && b.byMembers[p.platform]:
		b.unproven.members.add(p.member, -1)
	}
	if p.detached {
		b.detachedOf(p.platform).add(p.origin, -1)
	}
}

// answer takes note that an origin answered a message.
func (b *breakers) answer(origin string) {
	delete(b.silent, origin)
	if len(b.answers) >= maxOrigins {
		clear(b.answers) // as if all had answered just now
	}
	b.answers[origin]++
}

// detach takes note that the batch of a message waits for it no longer. If it did for a while, and its
// origin has answered none since it was sent, others to it are unlikely to be answered, until it answers one.
func (b *breakers) detach(p *pass, waited bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.detached = true
	b.detachedOf(p.platform).add(p.origin, 1)
	if b.byMembers[p.platform] && !p.unproven {
		b.unproven.members.add(p.member, 1)
	}
	if waited && p.answers == b.answers[p.origin] {
		if len(b.silent) >= maxOrigins {
			clear(b.silent) // the next ones tell
		}
		b.silent[p.origin] = true
	}
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

// forget removes shares that are free, turns that are over, and breakers through which nothing was sent for long. Without
// that the gauges would go on to show push services that have no devices here any more, and
// failures that are hours apart would count as failures in a row.
func (b *breakers) forget(now time.Time) {
	if len(b.origins)+len(b.freeAt)+len(b.turns) == 0 || now.Sub(b.swept) < forgetEvery {
		return
	}
	b.swept = now
	for _, m := range []map[member.ID]time.Time{b.freeAt, b.turns} {
		maps.DeleteFunc(m, func(_ member.ID, at time.Time) bool { return at.Before(now) })
	}
	for origin, at := range b.origins {
		if now.Sub(at.lastKnown()) > forgetAfter {
			b.remove(origin, at)
		}
	}
}

// asked returns how long the push service asks that all its devices wait; 0: it does not ask.
func (r Result) asked() time.Duration {
	if r.Origin && (r.Outcome == Wait || r.Outcome == Credentials) {
		return min(r.After, maxWait)
	}
	return 0
}
