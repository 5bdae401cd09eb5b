package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// leaseLife is how long a process that sweeps may be silent before another one
// goes on.
const leaseLife = time.Minute

// shortestRound is how long a round takes at least.
const shortestRound = 10 * time.Second

// The most sets of one step of the sweep. One that hurries expects to find most
// sets wrong, and so to rest between the looks.
const (
	sweepAtOnce = 100
	hurryAtOnce = 4 * usersAtOnce
)

// sweeper is the process' part in the sweep.
type sweeper struct {
	*Patrol
	owner  string
	round  round
	outage outage
}

// errNotHeld ends what a process does that sweeps no longer.
var errNotHeld = errors.New("somebody else sweeps, or the lease is lost")

// sweep goes over all sets again and again, as long as nobody else does.
func (p *Patrol) sweep(ctx context.Context) error {
	s := &sweeper{Patrol: p, owner: rand.Text(), outage: outage{log: p.options.Log, doing: "sweep"}}
	for ctx.Err() == nil {
		held, err := s.hold(ctx)
		if err == nil && held {
			err = s.sweepWhileHeld(ctx)
		}
		if err != nil {
			hideSweep()
			s.outage.wait(ctx, err)
		} else if !held {
			s.outage.over()
			hideSweep()
			pause(ctx, p.options.Lease/3)
		}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = p.options.Ledger.LeaveSweep(bounded, s.owner) // or else the lease runs out
	return nil
}

// hold takes over the sweep where it was left.
func (s *sweeper) hold(ctx context.Context) (held bool, err error) {
	state, held, err := s.options.Ledger.HoldSweep(ctx, s.owner, s.options.Lease)
	if err != nil || !held {
		return false, err
	}
	s.round = parseRound(state)
	return true, nil
}

// sweepWhileHeld takes step after step until somebody else sweeps.
func (s *sweeper) sweepWhileHeld(ctx context.Context) error {
	held, lose := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { s.keep(held, lose) })
	defer keeping.Wait()
	defer lose(nil)
	err := s.takeSteps(held)
	if errors.Is(err, errNotHeld) || errors.Is(context.Cause(held), errNotHeld) {
		pause(ctx, min(s.options.Lease/3, time.Second))
		return nil
	}
	return err
}

func (s *sweeper) takeSteps(ctx context.Context) error {
	for ctx.Err() == nil {
		start := time.Now()
		n, looking, err := s.step(ctx)
		if err != nil {
			return err
		}
		if err := s.save(ctx); err != nil {
			return err
		}
		s.outage.over()
		s.rest(ctx, start, n, looking)
	}
	return nil
}

// keep keeps the lease while a step takes long: the servers may be slow, or a batch
// be looked at in halves.
func (s *sweeper) keep(ctx context.Context, lose context.CancelCauseFunc) {
	for {
		pause(ctx, s.options.Lease/3)
		if ctx.Err() != nil {
			return
		}
		_, held, err := s.options.Ledger.HoldSweep(ctx, s.owner, s.options.Lease)
		if err == nil && !held {
			lose(errNotHeld)
		}
	}
}

// save keeps where the sweep is. It fails with errNotHeld when that is not this
// process' matter any more.
func (s *sweeper) save(ctx context.Context) error {
	s.round.show()
	held, err := s.options.Ledger.SaveSweep(ctx, s.owner, s.round.String(), s.options.Lease)
	if err == nil && !held {
		return errNotHeld
	}
	return err
}

// rest waits so that the rate is kept after a step that looked at n sets, and so
// that there is more rest than work.
func (s *sweeper) rest(ctx context.Context, start time.Time, n int, looking time.Duration) {
	rate, share := s.options.Rate, restShare
	if s.round.Hurried {
		rate, share = s.options.Hurry, 0
	}
	due := time.Duration(n) * time.Second / time.Duration(rate)
	s.wait(ctx, max(due-time.Since(start), time.Duration(share)*looking))
}

// wait lets d pass, or returns when there are bad news or ctx ends.
func (s *sweeper) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry:
	case <-ctx.Done():
	}
}

// step looks at some sets. It returns at how many, and how long it looked.
func (s *sweeper) step(ctx context.Context) (n int, looking time.Duration, err error) {
	switch {
	case s.round.Began == 0: // nothing is known, so that nothing may be there
		return 0, 0, s.begin(ctx, true)
	case s.isOvertaken():
		return 0, 0, s.begin(ctx, true)
	case s.round.Members:
		return 0, 0, s.sweepOrphans(ctx)
	}
	users, err := s.options.Members.Members(ctx, s.round.After, s.stepSize())
	if err != nil {
		return 0, 0, err
	}
	if len(users) == 0 {
		s.round.Members = true
		return 0, 0, nil
	}
	r, done, err := s.check(ctx, OfSweep, users)
	if err != nil {
		return 0, 0, err
	}
	s.count(r, done)
	s.round.Done += int64(len(users))
	s.round.After = users[len(users)-1]
	return len(users), r.Looking, nil
}

// stepSize makes a step of about two seconds.
func (s *sweeper) stepSize() int {
	if s.round.Hurried {
		return min(2*s.options.Hurry, hurryAtOnce)
	}
	return min(2*s.options.Rate, sweepAtOnce)
}
