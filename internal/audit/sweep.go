package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// leaseLife is how long a process that sweeps may be silent before another one
// goes on.
const leaseLife = time.Minute

// shortestRound is how long a round takes at least.
const shortestRound = 10 * time.Second

// sweepAtOnce bounds the sets of one step of the sweep.
const sweepAtOnce = 100

// round is where a sweep over all sets is: first those of all members, in the
// order of their ids, then those of nobody. It is kept in Redis; one that is lost
// with it starts anew.
type round struct {
	Began    int64     `json:"began"` // unix milliseconds, as the other times; 0: no round was begun
	After    member.ID `json:"after,omitzero"`
	Members  bool      `json:"members,omitzero"` // all members were looked at
	Done     int64     `json:"done"`
	Total    int64     `json:"total"`
	Hurried  bool      `json:"hurried,omitzero"`
	Deferred int       `json:"deferred,omitzero"` // repairs that were left for later
	Ended    int64     `json:"ended,omitzero"`    // of the round before
	Took     int64     `json:"took,omitzero"`
}

func (r round) progress() Progress {
	p := Progress{Held: true, Began: time.UnixMilli(r.Began), Hurried: r.Hurried, Done: r.Done, Total: r.Total}
	if r.Ended != 0 {
		p.Ended, p.Took = time.UnixMilli(r.Ended), time.Duration(r.Took)*time.Millisecond
	}
	return p
}

// sweeper is the process' part in the sweep.
type sweeper struct {
	*Patrol
	owner string
	round round
}

// sweep goes over all sets again and again, as long as nobody else does.
func (p *Patrol) sweep(ctx context.Context) error {
	s := &sweeper{Patrol: p, owner: rand.Text()}
	outage := outage{log: p.options.Log, doing: "sweep"}
	for ctx.Err() == nil {
		held, err := s.hold(ctx)
		switch {
		case err != nil:
			p.options.Observer.SweepMoved(Progress{})
			outage.wait(ctx, err)
		case !held:
			p.options.Observer.SweepMoved(Progress{})
			pause(ctx, p.options.Lease/3)
		default:
			if err := s.sweepWhileHeld(ctx); err != nil {
				outage.wait(ctx, err)
			} else {
				outage.over()
			}
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
	s.round = round{}
	if json.Unmarshal([]byte(state), &s.round) != nil {
		s.round = round{} // none is kept, or one that cannot be understood: anew
	}
	return true, nil
}

// sweepWhileHeld takes step after step until somebody else sweeps.
func (s *sweeper) sweepWhileHeld(ctx context.Context) error {
	for ctx.Err() == nil {
		start := time.Now()
		n, looking, err := s.step(ctx)
		if err != nil {
			return err
		}
		held, err := s.save(ctx)
		if err != nil || !held {
			return err
		}
		s.rest(ctx, start, n, looking)
	}
	return nil
}

func (s *sweeper) save(ctx context.Context) (held bool, err error) {
	state, err := json.Marshal(s.round)
	if err != nil {
		return false, err
	}
	s.options.Observer.SweepMoved(s.round.progress())
	return s.options.Ledger.SaveSweep(ctx, s.owner, string(state), s.options.Lease)
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
	if lost := s.lost.Load(); s.round.Began == 0 || lost > s.round.Began {
		return 0, 0, s.begin(ctx, lost > s.round.Began)
	}
	if s.round.Members {
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
	r, deferred, err := s.check(ctx, OfSweep, users)
	if err != nil {
		return 0, 0, err
	}
	s.round.Deferred += deferred
	s.round.Done += int64(len(users))
	s.round.After = users[len(users)-1]
	return len(users), r.Looking, nil
}

// stepSize makes a step of about two seconds.
func (s *sweeper) stepSize() int {
	if s.round.Hurried {
		return sweepAtOnce
	}
	return min(2*s.options.Rate, sweepAtOnce)
}

// begin begins a round.
func (s *sweeper) begin(ctx context.Context, hurried bool) error {
	total, err := s.options.Members.CountMembers(ctx, 1, math.MaxUint64)
	if err != nil {
		return err
	}
	s.round = round{
		Began: s.options.Now().UnixMilli(), Total: total, Hurried: hurried, Ended: s.round.Ended, Took: s.round.Took,
	}
	return nil
}

// sweepOrphans looks for the sets of who is no member, and ends the round. It
// cannot be resumed, but starts anew; it is quick, since it only asks who is a
// member.
func (s *sweeper) sweepOrphans(ctx context.Context) error {
	err := s.options.Ledger.EachStored(ctx, func(ctx context.Context, users []member.ID) error {
		start := time.Now()
		members, err := s.options.Members.Existing(ctx, users)
		if err != nil {
			return err
		}
		strangers := make([]member.ID, 0, len(users))
		for _, id := range users {
			if !members[id] {
				strangers = append(strangers, id)
			}
		}
		if len(strangers) > 0 {
			if _, _, err := s.check(ctx, OfSweep, strangers); err != nil {
				return err
			}
		}
		if _, err := s.save(ctx); err != nil { // it takes a while: others are to know that it goes on
			return err
		}
		s.rest(ctx, start, 0, time.Since(start))
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return s.end(ctx)
}

// end ends the round and begins the next one. A hurried one is followed by another
// while there was more to repair than could be.
func (s *sweeper) end(ctx context.Context) error {
	now := s.options.Now().UnixMilli()
	s.round.Ended, s.round.Took = now, now-s.round.Began
	s.wait(ctx, s.options.Round-time.Duration(s.round.Took)*time.Millisecond) // a small site is not swept all the time
	return s.begin(ctx, s.round.Hurried && s.round.Deferred > 0)
}
