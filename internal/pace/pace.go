package pace

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Probe asks one server something small.
type Probe struct {
	Name string // of the server, for people
	// Ask returns when the server has answered, or why it did not.
	Ask func(ctx context.Context) error
	// Floor is the time below which this server does not count as slow; 0:
	// [Options.Floor].
	Floor time.Duration
}

// Options say how a [Pacer] works; the zero value of a number stands for its
// default.
type Options struct {
	// Most is how many batches may be under way at once. Default 1.
	Most   int
	Probes []Probe
	// Interval is the time between two questions to each server; five of them
	// make a round. Default 200 ms.
	Interval time.Duration
	// Patience is how long a server may take to answer. Default 2 s.
	Patience time.Duration
	// Slow is how many times the usual a server must take to count as slow.
	// Default 4.
	Slow float64
	// Floor is the time below which no server counts as slow, unless its probe has
	// a floor of its own. Default 10 ms.
	Floor time.Duration
	// Ceiling is the time above which every server counts as slow, whatever is
	// usual. Default 100 ms.
	Ceiling time.Duration
	// Changed is told of each change of [State.Mode], by the goroutine of Run;
	// nil: nobody.
	Changed func(State)
}

// Bounds of the pauses.
const (
	firstPause = 100 * time.Millisecond // between batches, when one at once is still too many
	mostPause  = 10 * time.Second
	mostWait   = 5 * time.Second // between two questions to a server that does not answer
)

// Pacer lets batches of work in. It is safe for concurrent use.
type Pacer struct {
	options Options
	servers []*server

	mu      sync.Mutex    // guards what follows
	allowed int           // batches at once; 0: stopped
	inside  int           // batches under way
	pause   time.Duration // between the beginnings of two batches
	next    time.Time     // when the next batch may begin
	state   State
	turn    chan struct{} // closed and replaced when there may be room
}

// New returns a pacer that lets one batch in at once until [Pacer.Run] has found
// out whether more would do.
func New(o Options) *Pacer {
	o.Most = max(o.Most, 1)
	o.Interval = cmp.Or(o.Interval, 200*time.Millisecond)
	o.Patience = cmp.Or(o.Patience, 2*time.Second)
	o.Slow = cmp.Or(o.Slow, 4)
	o.Floor = cmp.Or(o.Floor, 10*time.Millisecond)
	o.Ceiling = cmp.Or(o.Ceiling, 100*time.Millisecond)
	p := &Pacer{options: o, allowed: 1, turn: make(chan struct{})}
	p.state = State{Batches: 1}
	for _, probe := range o.Probes {
		probe.Floor = cmp.Or(probe.Floor, o.Floor)
		p.servers = append(p.servers, &server{Probe: probe})
	}
	return p
}

// Enter waits until another batch may begin. Whoever entered must call leave in
// the end; calling it twice does no harm. Enter fails only when ctx ends.
func (p *Pacer) Enter(ctx context.Context) (leave func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for room: %w", context.Cause(ctx))
		}
		turn, wait := p.tryEnter()
		if turn == nil {
			return sync.OnceFunc(p.leave), nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-turn:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// tryEnter enters and returns nil, or returns what to wait for: that something
// changes, or that the pause is over.
func (p *Pacer) tryEnter() (turn <-chan struct{}, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside >= p.allowed {
		return p.turn, mostPause // it is told when there is room
	}
	now := time.Now()
	if wait := p.next.Sub(now); wait > 0 {
		return p.turn, wait
	}
	p.inside++
	p.next = now.Add(p.pause)
	return nil, 0
}

func (p *Pacer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
	p.wakeAll()
}

// wakeAll lets those who wait look again. The caller holds the lock.
func (p *Pacer) wakeAll() {
	close(p.turn)
	p.turn = make(chan struct{})
}

// State tells how fast the work may go now, and why.
func (p *Pacer) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
