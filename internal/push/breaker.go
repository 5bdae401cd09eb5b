package push

import (
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// The pauses of a push service that is left alone: base, doubled with each further one
// until it answers.
const (
	failPause        = time.Second      // of one that does not answer
	maxFailPause     = time.Minute      //
	refusedPause     = 30 * time.Second // of one that refuses our keys
	maxRefusedPause  = 5 * time.Minute  //
	maxWait          = time.Hour        // what it asks for is obeyed up to this: then one message finds out
	probeWait        = time.Second      // of those that find a probe under way
	forgetAfter      = time.Hour        // from the end of a pause: there was nothing to send to it since
	forgetEvery      = time.Minute      // looks for those
	failuresToOpen   = 5                // in a row
	maxOrigins       = 1024             // that fail and are remembered
	maxLoose         = 2048             // messages that wait for an answer, and no worker with them
	maxLooseOfOrigin = maxLoose / 4     //
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
type breakers struct {
	mu      sync.Mutex
	round   uint64 // counts the openings and the probes of all
	origins map[string]*breaker
	swept   time.Time      // when those that nothing was sent to were last forgotten
	loose   map[string]int // by origin: messages that go on after their batch
	looses  int            // of all
}

// breaker is what is known of a push service that failed.
type breaker struct {
	platform Platform
	failures int       // in a row, while it is closed
	trips    int       // how often it opened since the last answer
	until    time.Time // it is open until then; zero: it is closed
	probed   time.Time // half open: when the probe was let through; zero: none is under way
	since    uint64    // the round of its last opening or probe
	refused  bool      // it does not take our keys
}

// pass is the admission of a message.
type pass struct {
	platform Platform
	origin   string
	round    uint64
}

func newBreakers() *breakers {
	return &breakers{origins: make(map[string]*breaker), loose: make(map[string]int)}
}

// admit lets a message through, or says how long to wait.
func (b *breakers) admit(p Platform, origin string, probeTime time.Duration) (admission pass, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loose[origin] >= maxLooseOfOrigin {
		return pass{}, probeWait
	}
	now := time.Now()
	b.forget(now)
	if at := b.origins[origin]; at != nil && !at.until.IsZero() {
		if wait := at.until.Sub(now); wait > 0 {
			return pass{}, wait
		}
		if !at.probed.IsZero() && now.Sub(at.probed) < probeTime {
			return pass{}, probeWait
		}
		b.round++
		at.probed, at.since = now, b.round
	}
	return pass{p, origin, b.round}, 0
}

// report takes note of what became of a message, and returns for how long its origin is
// left alone from now on.
func (b *breakers) report(p pass, r Result) (wait time.Duration, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.origins[p.origin]
	says := evidenceOf(r)
	now := time.Now()
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
	if at == nil {
		at = b.add(p, now)
	}
	at.failures++
	var pause time.Duration
	switch {
	case says == refused:
		pause = max(min(r.After, maxWait), retry.Backoff(at.trips+1, refusedPause, maxRefusedPause))
	case says == away, at.failures >= failuresToOpen, !at.until.IsZero():
		pause = max(min(r.After, maxWait), retry.Backoff(at.trips+1, failPause, maxFailPause))
	default:
		return 0, false
	}
	b.round++
	if at.until.IsZero() {
		breakersOpen.WithLabelValues(string(at.platform)).Inc()
	}
	if is := says == refused; is != at.refused {
		at.refused = is
		credentialsRefused.WithLabelValues(string(at.platform)).Add(map[bool]float64{true: 1, false: -1}[is])
	}
	at.trips, at.failures, at.until, at.probed, at.since = at.trips+1, 0, now.Add(pause), time.Time{}, b.round
	return pause, true
}

// release takes a message back that was let through and of which nothing is known: it was
// cancelled.
func (b *breakers) release(p pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.origins[p.origin]; at != nil && at.since == p.round {
		at.probed = time.Time{}
	}
}

// add makes room for a breaker, and makes it.
func (b *breakers) add(p pass, now time.Time) *breaker {
	if len(b.origins) >= maxOrigins {
		var first string // whose pause ends first, or is over, or that has none
		for origin, at := range b.origins {
			if first == "" || at.until.Before(b.origins[first].until) {
				first = origin
			}
		}
		b.remove(first, b.origins[first])
	}
	at := &breaker{platform: p.platform}
	b.origins[p.origin] = at
	b.forget(now)
	return at
}

func (b *breakers) remove(origin string, at *breaker) {
	delete(b.origins, origin)
	if !at.until.IsZero() {
		breakersOpen.WithLabelValues(string(at.platform)).Dec()
	}
	if at.refused {
		credentialsRefused.WithLabelValues(string(at.platform)).Dec()
	}
}

// forget removes breakers that nothing was sent through for long, so that the gauges do
// not tell for ever of a push service that has no devices here any more.
func (b *breakers) forget(now time.Time) {
	if len(b.origins) == 0 || now.Sub(b.swept) < forgetEvery {
		return
	}
	b.swept = now
	for origin, at := range b.origins {
		if !at.until.IsZero() && now.Sub(at.until) > forgetAfter {
			b.remove(origin, at)
		}
	}
}

// loosen takes note of messages whose batch waits for them no longer, by origin. It
// reports false if there are too many of these already.
func (b *breakers) loosen(origins []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looses+len(origins) > maxLoose {
		return false
	}
	b.looses += len(origins)
	for _, origin := range origins {
		b.loose[origin]++
	}
	return true
}

// answered is the end of a message that loosen took note of.
func (b *breakers) answered(origin string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looses--
	b.loose[origin]--
	if b.loose[origin] == 0 {
		delete(b.loose, origin)
	}
}

// evidence is what a result says about the push service.
type evidence int

const (
	alive   evidence = iota // it answers
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
		case r.Status != 0: // it answered, about this device
			return alive
		}
	}
	return failing
}
