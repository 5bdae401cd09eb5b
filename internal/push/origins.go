package push

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
)

const (
	failuresInARow  = 5               // open a breaker
	mostRefusals    = 2               // in a row that count of one member: its devices may be made up
	firstPause      = time.Second     // at most, as it is random; each further pause is twice as long
	longestPause    = time.Minute     // of a push service that fails
	longestRefusal  = 5 * time.Minute // of a push service that refuses our keys
	longestAsked    = time.Hour       // of the time that it asks for; then one message finds out
	crowdedPause    = time.Second     // of a message without room
	forgetOriginsIn = time.Hour       // since the last that is known of them

	// The bounds of messages that are not answered.
	maxOfOrigin     = 2000
	maxLateOfOrigin = 500 // of them without a handler
	maxOfMember     = 64
	maxLateOfMember = 8 // for a push service
)

// origins keeps messages away from push services that fail, each apart, and bounds the messages that wait for an answer: of a
// push service, and of a member, so that the devices of a member hold up nobody else. A host that serves two platforms is two
// push services. It waits for nothing: a message that may
// not go is the queue's to bring again.
//
// A breaker opens after five failures in a row, or by an answer with a Retry-After about the whole push service. When its
// time is over, one message is the probe. An answer closes the breaker. The result of a message that left before the breaker
// opened, or before the probe, says nothing about the time since, unless it asks for more time.
type origins struct {
	lines *outage.Lines

	mu      sync.Mutex
	all     map[place]*origin
	members map[member.ID]int // messages that are not answered
	swept   time.Time
}

// place is a push service as a platform uses it: Google's takes the messages for phones and for browsers by one host.
type place struct {
	platform Platform
	origin   string
}

// origin is the state of a push service.
type origin struct {
	inFlight int               // messages that are not answered
	late     int               // of them without a handler
	lateOf   map[member.ID]int // likewise, by the member of the device
	failures int               // in a row
	refusals map[member.ID]int // that are counted in failures, by whose device it was
	pause    time.Duration     // the last that it did not ask for
	until    time.Time         // it is left alone until then; zero: its breaker is closed
	probing  bool              // the probe is under way
	round    int               // counts openings and probes
	refused  bool              // it does not take our keys
	known    time.Time         // when something was last known of it
}

// visit is a message that may go. It ends with report or release.
type visit struct {
	place  place
	member member.ID
	at     *origin
	round  int
	isLate bool
	isOver bool
}

func newOrigins(log *slog.Logger) *origins {
	return &origins{lines: outage.NewLines(log), all: make(map[place]*origin), members: make(map[member.ID]int)}
}

// admit lets a message go, or says how long it has to wait.
func (o *origins) admit(p Platform, name string, m member.ID) (*visit, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.forget(now)
	to := place{p, name}
	at := o.all[to]
	if at == nil {
		at = &origin{known: now, lateOf: make(map[member.ID]int), refusals: make(map[member.ID]int)}
		o.all[to] = at
	}
	isOpen := !at.until.IsZero()
	switch {
	case isOpen && now.Before(at.until):
		return nil, at.until.Sub(now)
	case isOpen && at.probing, at.inFlight >= maxOfOrigin, at.late >= maxLateOfOrigin, o.members[m] >= maxOfMember, at.lateOf[m] >= maxLateOfMember:
		return nil, crowdedPause
	case isOpen:
		at.probing = true
		at.round++
	}
	at.inFlight++
	o.members[m]++
	return &visit{place: to, member: m, at: at, round: at.round}, 0
}

// late takes note that nothing waits for the answer to a message any more but its report.
func (o *origins) late(v *visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.isOver { // it was answered meanwhile
		return
	}
	v.isLate = true
	v.at.late++
	v.at.lateOf[v.member]++
}

// release takes a message back that did not leave.
func (o *origins) release(v *visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(v)
	v.probeAgain()
}

// end is the end of a visit. It holds mu.
func (o *origins) end(v *visit) {
	v.isOver = true
	v.at.inFlight--
	less(o.members, v.member)
	if v.isLate {
		v.at.late--
		less(v.at.lateOf, v.member)
	}
}

func less(counts map[member.ID]int, m member.ID) {
	if counts[m]--; counts[m] == 0 {
		delete(counts, m)
	}
}

// probeAgain lets another message find out, if this message was the probe.
func (v *visit) probeAgain() {
	if v.round == v.at.round {
		v.at.probing = false
	}
}

// report takes note of a result, and returns for how long its push service is left alone from now on.
func (o *origins) report(v *visit, r Result) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(v)
	now, at := time.Now(), v.at
	at.known = now
	says, asked := evidenceOf(r), time.Duration(0)
	if says == failing || says == refused {
		asked = min(r.After, longestAsked)
	}
	isOld := v.round < at.round
	switch {
	case asked > 0 && r.Origin:
		if until := now.Add(asked); until.After(at.until) {
			o.open(v, until, r)
		}
	case isOld:
	case says == alive:
		o.close(v.place.platform, at)
	case says == none:
		v.probeAgain()
	case says == refused && at.until.IsZero() && at.refusals[v.member] == mostRefusals:
	default:
		if at.failures++; says == refused {
			at.refusals[v.member]++
		}
		if at.failures >= failuresInARow || !at.until.IsZero() {
			most := longestPause
			if says == refused {
				most = longestRefusal
			}
			at.pause = min(max(2*at.pause, retry.Jitter(firstPause)), most)
			o.open(v, now.Add(at.pause), r)
		}
	}
	return max(at.until.Sub(now), 0)
}

// open leaves a push service alone. It holds mu.
func (o *origins) open(v *visit, until time.Time, r Result) {
	at := v.at
	isRefused := r.Outcome == Credentials
	if at.until.IsZero() {
		breakersOpen.WithLabelValues(string(v.place.platform)).Inc()
	}
	if isRefused != at.refused {
		credentialsRefused.WithLabelValues(string(v.place.platform)).Add(map[bool]float64{true: 1, false: -1}[isRefused])
	}
	at.failures, at.until, at.probing, at.refused = 0, until, false, isRefused
	clear(at.refusals)
	at.round++
	level, message := slog.LevelWarn, "push service fails and is left alone"
	if isRefused {
		level, message = slog.LevelError, "push service refuses our keys"
	}
	o.lines.Log(context.Background(), level, string(v.place.platform), message, "platform", string(v.place.platform), "origin", v.place.origin,
		"outcome", r.Outcome, "reason", r.Reason, "status", r.Status, "for", time.Until(until).Round(time.Millisecond))
}

// close forgets the failures of a push service. It holds mu.
func (*origins) close(p Platform, at *origin) {
	if !at.until.IsZero() {
		breakersOpen.WithLabelValues(string(p)).Dec()
	}
	if at.refused {
		credentialsRefused.WithLabelValues(string(p)).Dec()
	}
	at.failures, at.pause, at.until, at.probing, at.refused = 0, 0, time.Time{}, false, false
	clear(at.refusals)
}

// forgetKeys closes the breakers of push services of a platform that refuse our keys: the keys are new.
func (o *origins) forgetKeys(p Platform) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for to, at := range o.all {
		if to.platform == p && at.refused {
			o.close(p, at)
			at.round++ // answers on their way are about the old keys
		}
	}
}

// forget removes push services that nothing was sent to for long, once a minute: failures that are hours apart are none
// in a row, and the gauges are not to show them for ever. It holds mu.
func (o *origins) forget(now time.Time) {
	if now.Sub(o.swept) < time.Minute {
		return
	}
	o.swept = now
	for to, at := range o.all {
		if at.inFlight == 0 && now.Sub(at.known) > forgetOriginsIn && now.Sub(at.until) > forgetOriginsIn {
			o.close(to.platform, at)
			delete(o.all, to)
		}
	}
}

// evidence is the statement of a result about the push service.
type evidence int

const (
	alive   evidence = iota // it answers
	none                    // nothing
	failing                 // it may be away
	refused                 // it does not take our keys
)

func evidenceOf(r Result) evidence {
	switch r.Outcome {
	case Accepted, Gone, Rejected:
		return alive
	case Credentials, Wait:
		switch {
		case r.Reason == ReasonHeld:
			return none
		case r.Origin && r.Outcome == Credentials:
			return refused
		case r.Origin, r.Status/100 == 5:
			return failing
		case r.Outcome == Wait && r.Status == 401: // the sender has another token for the next message
			return none
		case r.Status != 0: // it answered, about this device
			return alive
		}
	}
	return failing
}
