package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// Probe asks one server something small.
type Probe struct {
	Name string // of the server
	// Ask returns when the server has answered, or why it did not.
	Ask func(ctx context.Context) error
	// Floor is the time below which this server does not count as slow; 0: 10 ms.
	Floor time.Duration
}

// RedisFloor is the floor for Redis, whose answers take a fraction of MySQL's.
const RedisFloor = 2 * time.Millisecond

// PacerOptions configure a [Pacer].
type PacerOptions struct {
	// Parallel is the maximum of batches at once; 0: 1.
	Parallel int
	// Rate is the maximum of members a second; 0: none.
	Rate   int
	Probes []Probe
	// Interval is the time between two questions to each server; 0: 200 ms.
	Interval time.Duration
	// Full says that a slow server is no reason to go slower: one that does not answer still is.
	Full bool
	// Changed is called by Run with what it found, about once a second; may be nil.
	Changed func(Pace)
}

// What is slow, and how a pacer reacts.
const (
	roundAnswers  = 5                      // of each server; their median is robust against two outliers
	busyAnyway    = ceiling / slowFactor   // what a server may take, without the work, and count as usual at once
	probeTimeout  = 2 * time.Second        // no answer by then counts as none
	slowFactor    = 4                      // times the usual
	defaultFloor  = 10 * time.Millisecond  // a server that needs microseconds may need five times as many for no reason
	ceiling       = 100 * time.Millisecond // slow, whatever is usual
	usualRise     = 20 * time.Minute       // in which the usual time may rise by its own size: 5 % a minute
	minPause      = 100 * time.Millisecond // between batches, when one at once is too many
	pauseRounds   = 3                      // the longest pause, in rounds: one whole round at least is in it, wherever it begins
	maxProbePause = 5 * time.Second        // between two questions to a server that does not answer
)

// Mode is how a [Pacer] finds the servers.
type Mode int

// The modes.
const (
	Free    Mode = iota // nothing is wrong: as many batches as are allowed, or soon
	Slowed              // a server is slow, or was until a moment ago
	Stopped             // a server does not answer
)

// Pace is how fast work may go, and why.
type Pace struct {
	Mode    Mode
	Batches int           // at once
	Pause   time.Duration // between the beginnings of two batches
	Enough  bool          // more batches would get no more done

	// The server that is the reason; empty in Free.
	Server  string
	Latency time.Duration // of its answers
	Usual   time.Duration // what they usually take
	Err     error         // why it did not answer
}

// String describes the pace, as in "slowed down: MySQL answers in 80 ms, usually
// 1 ms; batches at once: 2".
func (p Pace) String() string {
	batches := fmt.Sprintf("batches at once: %d", p.Batches)
	switch p.Mode {
	case Stopped:
		return fmt.Sprintf("stopped: %v", p.Problem())
	case Slowed:
		if p.Pause > 0 {
			batches = fmt.Sprintf("a batch every %v at most", p.Pause)
		}
		return fmt.Sprintf("slowed down: %s answers in %s, usually %s; %s", p.Server, milliseconds(p.Latency), milliseconds(p.Usual), batches)
	case Free:
	}
	if p.Enough {
		batches += ", as more would get no more done"
	}
	return "all servers answer as usual; " + batches
}

// Problem returns why it is not Free, nil if it is.
func (p Pace) Problem() error {
	switch p.Mode {
	case Stopped:
		return fmt.Errorf("%s cannot be used: %w", p.Server, p.Err)
	case Slowed:
		return errors.New(p.String())
	case Free:
	}
	return nil
}

// milliseconds formats durations in one unit, to be compared.
func milliseconds(d time.Duration) string {
	if ms := float64(d) / float64(time.Millisecond); ms < 10 {
		return fmt.Sprintf("%.2g ms", ms)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// Pacer lets batches of work in. It is safe for concurrent use.
type Pacer struct {
	options PacerOptions
	servers []*server // belong to Run
	knee    knee      // likewise

	mu      sync.Mutex // guards what follows
	pace    Pace
	inside  int           // batches under way
	worked  bool          // one was, in this round
	filled  bool          // there were as many as there may be, in this round
	done    work          // in this round
	entered time.Time     // when the last batch entered
	share   time.Duration // of that batch, by the rate
	changed chan struct{} // closed and replaced when there may be room
}

// NewPacer returns a pacer that lets one batch in at once until [Pacer.Run] has found
// out whether more would do; without probes, as many as may be.
func NewPacer(o PacerOptions) *Pacer {
	o.Parallel = max(o.Parallel, 1)
	o.Interval = cmp.Or(o.Interval, 200*time.Millisecond)
	p := &Pacer{options: o, pace: Pace{Batches: 1}, changed: make(chan struct{})}
	if len(o.Probes) == 0 || o.Full {
		p.pace.Batches = o.Parallel
	}
	for _, probe := range o.Probes {
		probe.Floor = cmp.Or(probe.Floor, defaultFloor)
		p.servers = append(p.servers, &server{Probe: probe})
	}
	return p
}

// Enter waits until a batch of n members may begin. The caller calls leave at its
// end; a second call has no effect. Enter fails only when ctx ends.
func (p *Pacer) Enter(ctx context.Context, n int) (leave func(), err error) {
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for room: %w", context.Cause(ctx))
		}
		changed, wait := p.tryEnter(n)
		if changed == nil {
			return sync.OnceFunc(func() { p.leave(n) }), nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// tryEnter enters and returns nil, or returns what to wait for.
func (p *Pacer) tryEnter(n int) (changed <-chan struct{}, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside >= p.pace.Batches {
		p.filled = true
		return p.changed, p.maxPause() // the channel is closed when there is room
	}
	now := time.Now()
	if wait := p.entered.Add(max(p.pace.Pause, p.share)).Sub(now); wait > 0 {
		return p.changed, wait
	}
	p.inside++
	p.worked = true
	p.filled = p.filled || p.inside == p.pace.Batches
	p.entered = now
	if p.options.Rate > 0 {
		p.share = time.Duration(n) * time.Second / time.Duration(p.options.Rate)
	}
	return nil, 0
}

func (p *Pacer) leave(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
	p.done.batches++
	p.done.members += n
	p.wake()
}

// wake lets all that wait try again. The caller holds the lock.
func (p *Pacer) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Pace returns how fast work may go now, and why.
func (p *Pacer) Pace() Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace
}

// Run watches the servers until ctx ends. While it does not run, the pace stays.
func (p *Pacer) Run(ctx context.Context) {
	wait, begun := p.options.Interval, time.Now()
	for asked := 1; ; asked++ {
		silent := p.ask(ctx)
		if ctx.Err() != nil { // what was not answered says nothing then
			return
		}
		switch {
		case silent != nil:
			p.set(Pace{Mode: Stopped, Server: silent.Name, Err: silent.err})
			asked, wait = 0, min(2*wait, maxProbePause)
		case p.Pace().Mode == Stopped: // begin carefully, without the answers from before
			for _, s := range p.servers {
				s.answers = nil
			}
			p.set(Pace{Batches: 1})
			asked, wait, begun = 0, p.options.Interval, time.Now()
		case asked == roundAnswers:
			took, r := time.Since(begun), p.endRound()
			for _, s := range p.servers {
				s.endRound(took, r.rested)
			}
			p.set(p.next(r, took))
			asked, begun = 0, time.Now()
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// round is what the work did in a round.
type round struct {
	rested bool // the pace kept all batches out
	filled bool // there were as many batches as there may be
	done   work
}

// endRound returns what was done in the round that ends.
func (p *Pacer) endRound() round {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := round{rested: p.pace.Pause > 0 && !p.worked, filled: p.filled, done: p.done}
	p.worked, p.filled, p.done = p.inside > 0, p.inside > 0 && p.inside >= p.pace.Batches, work{}
	return r
}

// ask asks all servers at the same time, and returns one that did not answer, or nil.
func (p *Pacer) ask(ctx context.Context) *server {
	var all sync.WaitGroup
	for _, s := range p.servers {
		all.Go(func() { s.ask(ctx) })
	}
	all.Wait()
	if i := slices.IndexFunc(p.servers, func(s *server) bool { return s.err != nil }); i >= 0 {
		return p.servers[i]
	}
	return nil
}

// next returns the pace after a round of answers. A pause is taken back before more
// batches are let in. Batches are added only when all servers are near their usual, so that the
// number comes to rest between too few and too many, and only while they get more done.
func (p *Pacer) next(r round, took time.Duration) Pace {
	now := p.Pace()
	if p.options.Full {
		return Pace{Batches: p.options.Parallel}
	}
	if slow := p.slowest(1); slow != nil {
		now.Mode, now.Server, now.Latency, now.Usual = Slowed, slow.Name, slow.median, slow.usual
		if now.Batches > 1 {
			now.Batches /= 2
		} else {
			now.Pause = min(max(2*now.Pause, minPause), p.maxPause())
		}
		return now
	}
	if now.Pause > minPause {
		now.Pause /= 2
		if now.Pause >= minPause {
			return now
		}
	} else if now.Pause == 0 && p.slowest(0.5) == nil {
		if r.filled {
			now.Batches = p.knee.next(now.Batches, p.options.Parallel, r.done, took)
		} else {
			now.Batches = min(now.Batches+1, p.options.Parallel)
		}
	}
	return Pace{Batches: now.Batches, Enough: p.knee.isEnough(now.Batches) && now.Batches < p.options.Parallel}
}

// maxPause returns how long a pause may be: 3 s, unless the Interval is another.
func (p *Pacer) maxPause() time.Duration { return pauseRounds * roundAnswers * p.options.Interval }

// slowest returns the server that takes the most times its usual, of those that are
// above a share of what is slow; or nil.
func (p *Pacer) slowest(share float64) (worst *server) {
	factor := func(s *server) float64 { return float64(s.median) / float64(max(s.usual, 1)) }
	for _, s := range p.servers {
		slow := s.median > s.Floor && (factor(s) > share*slowFactor || float64(s.median) > share*float64(ceiling))
		if slow && (worst == nil || factor(s) > factor(worst)) {
			worst = s
		}
	}
	return worst
}

// set sets the pace, and reports it.
func (p *Pacer) set(now Pace) {
	p.mu.Lock()
	p.pace = now
	p.wake()
	p.mu.Unlock()
	if p.options.Changed != nil {
		p.options.Changed(now)
	}
}

// server is what is known of one server.
type server struct {
	Probe

	answers []time.Duration // of this round
	err     error           // of the last question
	usual   time.Duration   // 0: unknown
	median  time.Duration   // of the last round
}

// ask asks once and notes the answer.
func (s *server) ask(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	s.err = s.Ask(bounded)
	switch {
	case s.err == nil:
		s.answers = append(s.answers, time.Since(start))
	case bounded.Err() != nil:
		s.err = fmt.Errorf("no answer within %v: %w", probeTimeout, s.err)
	}
}

// endRound takes the median of a round that took so long, and learns what is usual. If no batch ran in the round, other
// load is the reason for the latency, and slowing down would not lower it: it counts as usual, up to busyAnyway.
func (s *server) endRound(took time.Duration, rested bool) {
	slices.Sort(s.answers)
	s.median = s.answers[len(s.answers)/2]
	s.answers = s.answers[:0]
	switch {
	case s.usual == 0:
		s.usual = s.median
	case s.median < s.usual:
		s.usual -= (s.usual - s.median) / 2
	case rested && s.median <= busyAnyway:
		s.usual = s.median
	default:
		rise := time.Duration(float64(s.usual) * float64(took) / float64(usualRise))
		s.usual = min(s.usual+max(rise, 1), s.median)
	}
}
