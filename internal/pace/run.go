package pace

import (
	"context"
	"sync"
	"time"
)

// Run watches the servers until ctx ends, which is no error. While it does not
// run, the pace stays what it was.
func (p *Pacer) Run(ctx context.Context) error {
	wait, begun := p.options.Interval, time.Now()
	for asked := 1; ; asked++ {
		p.ask(ctx)
		if ended(ctx) { // what was not answered says nothing then
			return nil
		}
		switch silent := p.silent(); {
		case silent != nil:
			p.stop(silent)
			asked, wait = 0, min(2*wait, mostWait)
		case p.State().Mode == Stopped:
			p.resume()
			asked, wait, begun = 0, p.options.Interval, time.Now()
		case asked == answersOfRound:
			p.endRound(time.Since(begun))
			asked, begun = 0, time.Now()
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func ended(ctx context.Context) bool { return ctx.Err() != nil }

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask asks all servers at the same time.
func (p *Pacer) ask(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range p.servers {
		all.Go(func() { s.ask(ctx, p.options.Patience) })
	}
	all.Wait()
}

// silent returns a server that did not answer, or nil.
func (p *Pacer) silent() *server {
	for _, s := range p.servers {
		if s.err != nil {
			return s
		}
	}
	return nil
}

// slowest returns the server that takes the most times its usual, of those for whom
// that, or the time itself, is more than a share of what is slow; or nil.
func (p *Pacer) slowest(share float64) (worst *server) {
	times, ceiling := share*p.options.Slow, time.Duration(share*float64(p.options.Ceiling))
	factor := func(s *server) float64 { return float64(s.median) / float64(max(s.usual, 1)) }
	for _, s := range p.servers {
		if s.slow(times, ceiling) && (worst == nil || factor(s) > factor(worst)) {
			worst = s
		}
	}
	return worst
}

// endRound decides by the answers of a round that took so long.
func (p *Pacer) endRound(took time.Duration) {
	for _, s := range p.servers {
		s.endRound(took)
	}
	p.change(func(now *State) {
		if slow := p.slowest(1); slow != nil {
			now.Mode, now.Server, now.Latency, now.Usual = Slowed, slow.Name, slow.median, slow.usual
			p.decrease(now)
			return
		}
		p.increase(now, p.slowest(0.5) == nil)
		if now.Pause == 0 {
			*now = State{Batches: now.Batches}
		}
	})
}

func (p *Pacer) decrease(now *State) {
	if now.Batches > 1 {
		now.Batches /= 2
		return
	}
	now.Pause = min(max(2*now.Pause, firstPause), mostPause)
}

// increase first takes the pauses back, which is where decrease ended. They go
// quickly: as long as there is one, hardly anything is under way. More batches
// come only when all is near its usual, so that the number comes to rest between
// too few and too many.
func (p *Pacer) increase(now *State, near bool) {
	if now.Pause > 0 {
		if now.Pause /= 2; now.Pause < firstPause {
			now.Pause = 0
		}
		return
	}
	if near {
		now.Batches = min(now.Batches+1, p.options.Most)
	}
}

func (p *Pacer) stop(silent *server) {
	p.change(func(now *State) { *now = State{Mode: Stopped, Server: silent.Name, Err: silent.err} })
}

// resume begins anew, carefully. Answers from before the outage are forgotten.
func (p *Pacer) resume() {
	for _, s := range p.servers {
		s.answers = s.answers[:0]
	}
	p.change(func(now *State) { *now = State{Batches: 1} })
}

// change makes another state hold, and tells of another mode.
func (p *Pacer) change(how func(*State)) {
	p.mu.Lock()
	before := p.state.Mode
	how(&p.state)
	now := p.state
	p.allowed, p.pause = now.Batches, now.Pause
	if now.Pause == 0 {
		p.next = time.Time{}
	}
	p.wakeAll()
	p.mu.Unlock()
	if now.Mode != before && p.options.Changed != nil {
		p.options.Changed(now)
	}
}
