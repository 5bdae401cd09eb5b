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
	maxOfOrigin = 1500 // more than handlers wait for at once
	maxOfMember = 16   // to a push service
)

// origins keeps messages away from push services that fail, each apart, and bounds the messages that wait for an answer: of a
// push service, and of a member there, so that its devices hold up nobody else. A host that serves two platforms is two
// push services. A message that may not go is the queue's to bring again: nothing waits here.
//
// A breaker opens after five failures in a row, or by an answer with a Retry-After about the whole push service. When its
// time is over, one message is the probe. An answer closes the breaker. The result of a message that left before the breaker
// opened, or before the probe, says nothing about the time since, unless it asks for more time.
type origins struct {
	lines *outage.Lines

	mu    sync.Mutex
	all   map[place]*origin
	swept time.Time
}

// place is a push service as a platform uses it: Google's takes the messages for phones and for browsers by one host.
type place struct {
	platform Platform
	origin   string
}

// origin is the state of a push service.
type origin struct {
	place

	inFlight int               // messages that are not answered
	of       map[member.ID]int // likewise, of a member
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
	*origin
	member member.ID
	round  int
}

func newOrigins(log *slog.Logger) *origins {
	return &origins{lines: outage.NewLines(log), all: make(map[place]*origin)}
}

// admit lets a message go, or says how long it has to wait.
func (o *origins) admit(p Platform, name string, m member.ID) (*visit, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, to := time.Now(), place{p, name}
	o.forget(now)
	at := o.all[to]
	if at == nil {
		at = &origin{place: to, known: now, of: make(map[member.ID]int), refusals: make(map[member.ID]int)}
		o.all[to] = at
	}
	isOpen := !at.until.IsZero()
	switch {
	case now.Before(at.until):
		return nil, at.until.Sub(now)
	case isOpen && at.probing, at.inFlight >= maxOfOrigin, at.of[m] >= maxOfMember:
		return nil, crowdedPause
	case isOpen:
		at.probing = true
		at.round++
	}
	at.inFlight++
	at.of[m]++
	return &visit{at, m, at.round}, 0
}

// release takes a message back that did not leave.
func (o *origins) release(v *visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v.end()
	v.probeAgain()
}

// end is the end of a visit.
func (v *visit) end() {
	v.inFlight--
	if v.of[v.member]--; v.of[v.member] == 0 {
		delete(v.of, v.member)
	}
}

// probeAgain lets another message find out, if this message was the probe.
func (v *visit) probeAgain() {
	if v.round == v.origin.round {
		v.probing = false
	}
}

// report takes note of a result, and returns for how long its push service is left alone from now on.
func (o *origins) report(v *visit, r Result) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	v.end()
	now, at, says := time.Now(), v.origin, evidenceOf(r)
	at.known = now
	switch until := now.Add(min(r.After, longestAsked)); {
	case r.Origin && r.After > 0 && (says == failing || says == refused):
		if until.After(at.until) {
			o.open(at, until, r)
		}
	case v.round < at.round:
	case says == alive:
		at.close()
	case says == none:
		v.probeAgain()
	case says == refused && at.until.IsZero() && at.refusals[v.member] == mostRefusals:
	default:
		most := longestPause
		if says == refused {
			at.refusals[v.member]++
			most = longestRefusal
		}
		if at.failures++; at.failures >= failuresInARow || !at.until.IsZero() {
			at.pause = min(max(2*at.pause, retry.Jitter(firstPause)), most)
			o.open(at, now.Add(at.pause), r)
		}
	}
	return max(at.until.Sub(now), 0)
}

// open leaves a push service alone.
func (o *origins) open(at *origin, until time.Time, r Result) {
	pause := at.pause
	at.close() // the gauges count it again
	at.pause, at.until, at.refused = pause, until, r.Outcome == Credentials
	at.round++
	breakersOpen.WithLabelValues(string(at.platform)).Inc()
	reason := r.Reason
	if r.Err != nil {
		reason += ": " + r.Err.Error()
	}
	level, message := slog.LevelWarn, "push service fails and is left alone"
	if at.refused {
		credentialsRefused.WithLabelValues(string(at.platform)).Inc()
		level, message = slog.LevelError, "push service refuses our keys"
	}
	o.lines.Log(context.Background(), level, string(at.platform), message, "platform", string(at.platform), "origin", at.origin,
		"outcome", r.Outcome, "reason", reason, "status", r.Status, "for", time.Until(until).Round(time.Millisecond))
}

// close forgets the failures of a push service.
func (at *origin) close() {
	if !at.until.IsZero() {
		breakersOpen.WithLabelValues(string(at.platform)).Dec()
	}
	if at.refused {
		credentialsRefused.WithLabelValues(string(at.platform)).Dec()
	}
	at.failures, at.pause, at.until, at.probing, at.refused = 0, 0, time.Time{}, false, false
	clear(at.refusals)
}

// forgetKeys closes the breakers of push services of a platform that refuse our keys: the keys are new.
func (o *origins) forgetKeys(p Platform) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.all {
		if at.platform == p && at.refused {
			at.close()
			at.round++ // answers on their way are about the old keys
		}
	}
}

// forget removes push services that nothing was sent to for long, once a minute: failures that are hours apart are none
// in a row, and the gauges are not to show them for ever.
func (o *origins) forget(now time.Time) {
	if now.Sub(o.swept) < time.Minute {
		return
	}
	o.swept = now
	for to, at := range o.all {
		if at.inFlight == 0 && now.Sub(at.known) > forgetOriginsIn && now.Sub(at.until) > forgetOriginsIn {
			at.close()
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
