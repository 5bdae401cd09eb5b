package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/once"
)

// round is where a sweep over all sets is: first those of all members, in the order of
// their ids, then those of no member. A hurried one builds sets that are missing, and looks
// at no others. It is kept in Redis; one that is lost with it begins again.
type round struct {
	Began int64 `json:"began"`         // unix milliseconds, as the other times; 0: no round was begun
	Lost  int64 `json:"lost,omitzero"` // the last loss of Redis before it began
	// Since is the last loss, in unix milliseconds, of which all sets are built again: the last
	// one before a hurried round that left out none. 0: no such round has ended.
	Since   int64       `json:"since,omitzero"`
	After   member.ID   `json:"after,omitzero"` // the members up to this one were looked at
	Members bool        `json:"members,omitzero"`
	Total   int64       `json:"total"`
	Hurried bool        `json:"hurried,omitzero"`
	Counts  bulk.Counts `json:"counts,omitempty"`
	Ended   int64       `json:"ended,omitzero"` // of the round before
	Took    int64       `json:"took,omitzero"`
}

// What a round counts, beside [bulk.Failed].
const (
	countDone     = bulk.Seen  // members whose sets were looked at
	countWrong    = "wrong"    // sets with an error
	countRepaired = "repaired" // refills that were enqueued
	countDeferred = "deferred" // those that were left for later
	countSpared   = "spared"   // of the members that were done, those whose sets cannot have been lost
)

// parseRound reads what String wrote. Anything else is no round.
func parseRound(state string) (r round) {
	if json.Unmarshal([]byte(state), &r) != nil {
		return round{}
	}
	return r
}

func (r round) String() string {
	state, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("audit: encoding %T: %v", r, err)) // it is made of numbers
	}
	return string(state)
}

// seen is how many members were looked at.
func (r round) seen() int64 {
	return r.Counts[countDone] + r.Counts[bulk.Failed] + r.Counts[bulk.Unreachable]
}

// sweepBatch is how many sets one batch looks at, at most.
const sweepBatch = 100

// sweeper is the sweep of this process.
type sweeper struct {
	*Patrol
	fence   once.Fence // of the attempt in which this process sweeps
	round   round
	since   int64 // the highest round.Since of this process, as Redis may lose that of the round
	trouble trouble
}

// handOver is after how many failures in a row another process may sweep: after half a minute or
// more.
const handOver = 6

// sweepName is the name that the process holds that sweeps.
const sweepName = "activityd/audit-sweep"

var (
	// errRefused: what was saved is gone, or another process has begun to sweep.
	errRefused = errors.New("the position of the sweep was not saved")
	// errStale: the sweep of this process is over, which it has not noticed yet; or the
	// fences have gone back, after a restore of MySQL.
	errStale = errors.New("a process with a higher fence has begun to sweep, within the last hour")
)

// sweep goes over all sets again and again, as long as no other process does.
func (p *Patrol) sweep(ctx context.Context) error {
	s := &sweeper{Patrol: p, trouble: p.newTrouble("sweep")}
	for ctx.Err() == nil {
		asked := time.Now()
		err := p.options.Once.Hold(ctx, once.Key{Name: sweepName, Lease: p.options.Lease}, func(ctx context.Context, a once.Attempt) error {
			if time.Since(asked) > p.options.Lease { // another process could sweep
				s.trouble.over(ctx)
			}
			s.fence = a.Fence
			return s.sweepWhileHeld(ctx)
		})
		if err != nil && !errors.Is(err, once.ErrLost) {
			s.trouble.wait(ctx, err)
		}
	}
	return nil
}

// sweepWhileHeld sweeps until ctx ends, and waits out errors. When that takes long it
// returns the error: another process may be able to sweep.
func (s *sweeper) sweepWhileHeld(ctx context.Context) error {
	defer hideSweep()
	for {
		err := s.sweepRounds(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRefused):
			pause(ctx, time.Second)
		case s.trouble.failures >= handOver:
			return err
		default:
			hideSweep()
			s.trouble.wait(ctx, err)
		}
	}
}

// sweepRounds goes on where the sweep was left, and through rounds until ctx ends.
func (s *sweeper) sweepRounds(ctx context.Context) error {
	state, begun, err := s.options.Ledger.BeginSweep(ctx, uint64(s.fence))
	switch {
	case err == nil && !begun:
		err = errStale
	case err == nil:
		s.round = parseRound(state)
	case s.isOneNodeAway(ctx, err): // once it is back, save is refused, and the sweep goes on where it was kept
		err = nil
	}
	for err == nil && ctx.Err() == nil {
		if s.round.Began == 0 || s.isOvertaken() { // where nothing is known, no set may be there
			err = s.begin(ctx, true)
		} else if err = s.sweepRound(ctx); s.isOvertaken() {
			err = nil
		}
	}
	return err
}

// save keeps the round.
func (s *sweeper) save(ctx context.Context) error {
	s.round.show()
	saved, err := s.options.Ledger.SaveSweep(ctx, uint64(s.fence), s.round.String())
	switch {
	case err == nil && !saved:
		return errRefused
	case s.isOneNodeAway(ctx, err): // only effort depends on what is kept
		return nil
	}
	return err
}

// isOneNodeAway reports whether an error only means that the node of Redis that keeps the round
// is away: the sets of the others are swept nevertheless.
func (s *sweeper) isOneNodeAway(ctx context.Context, err error) bool {
	if !bulk.IsNodeAway(err) || len(s.options.Probes) == 0 {
		return false
	}
	for _, p := range s.options.Probes {
		if p.Ask(ctx) != nil {
			return false
		}
	}
	return true
}

// begin begins a round. The last loss is read first, so that one during begin is later.
// A hurried round does not wait for the members to be counted again.
func (s *sweeper) begin(ctx context.Context, hurried bool) error {
	again := s.round.Hurried
	began, lost, total := time.Now().UnixMilli(), s.options.LostAt(), s.round.Total
	hurried = hurried && s.options.Build != nil
	if total == 0 || !hurried {
		counted, err := s.options.Members.CountMembers(ctx, 1, math.MaxUint64)
		if err != nil {
			return err
		}
		total = counted
	}
	s.round = round{
		Began: began, Lost: lost, Total: total, Hurried: hurried && total > 0, Ended: s.round.Ended, Took: s.round.Took,
		Since: max(s.since, s.round.Since),
	}
	if s.round.Hurried && !again {
		s.options.Log.WarnContext(ctx, "redis is new or lost data", "rebuild", "all missing sets", "members", total)
	}
	return s.save(ctx)
}

// sweepRound continues the round to its end, and begins the next one. It ends early when
// the round is overtaken.
func (s *sweeper) sweepRound(ctx context.Context) error {
	if s.round.Hurried {
		if err := s.rebuild(ctx); err != nil {
			return err
		}
		return s.end(ctx)
	}
	ctx, end := s.untilLoss(ctx)
	defer end()
	if !s.round.Members {
		if err := s.visitMembers(ctx); err != nil {
			return err
		}
		s.round.Members = true
	}
	if err := s.visitOrphans(ctx); err != nil {
		return err
	}
	return s.end(ctx)
}

// visitMembers looks at the sets of the members after the round's position.
func (s *sweeper) visitMembers(ctx context.Context) error {
	return s.goOn(ctx, bulk.Walk{
		Visit: s.visit, Batch: min(2*s.options.Rate, sweepBatch), // about two seconds
		Pacer: bulk.NewPacer(bulk.PacerOptions{Rate: s.options.Rate}),
	})
}

// goOn visits the members after the round's position.
func (s *sweeper) goOn(ctx context.Context, w bulk.Walk) error {
	w.Source = s.options.Members
	w.Saved = func(_ int, at bulk.Checkpoint) error {
		s.round.After, s.round.Counts = at.Position, at.Counts
		if err := s.save(ctx); err != nil {
			return err
		}
		s.trouble.over(ctx)
		return nil
	}
	_, err := s.walk(ctx, OfSweep, w, bulk.Checkpoint{Position: s.round.After, Counts: s.round.Counts})
	return err
}

// visit looks at some sets, and pauses longer than it looks.
func (s *sweeper) visit(ctx context.Context, members []member.ID) (bulk.Counts, []member.ID, error) {
	r, err := s.auditor.Check(ctx, members)
	if err != nil {
		return nil, nil, err
	}
	countSets(OfSweep, r)
	done, err := s.follow(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	pause(ctx, restShare*r.Looking)
	done[countDone], done[countWrong], done[bulk.Unreachable] = int64(len(members)-len(r.Unreachable)), int64(r.Erroneous), int64(len(r.Unreachable))
	return done, nil, nil
}

// visitOrphans looks for sets of no member. It cannot be resumed, but is quick, since it
// only asks which ids are members. Those on a node that is away are left out.
func (s *sweeper) visitOrphans(ctx context.Context) error {
	var ended error
	err := s.options.EachStored(ctx, func(ctx context.Context, ids []member.ID) error {
		ended = s.visitOrphansOf(ctx, ids)
		return ended
	})
	if ended == nil && s.isOneNodeAway(ctx, err) {
		return nil
	}
	return err
}

// visitOrphansOf looks for sets of no member among those of ids.
func (s *sweeper) visitOrphansOf(ctx context.Context, ids []member.ID) error {
	start := time.Now()
	orphans, err := s.auditor.Orphans(ctx, ids)
	if err != nil {
		return err
	}
	from := bulk.Checkpoint{Counts: s.round.Counts}
	at, err := s.walk(ctx, OfSweep, bulk.Walk{Source: bulk.List(orphans), Visit: s.visit, Pacer: bulk.NewPacer(bulk.PacerOptions{})}, from)
	if err != nil {
		return err
	}
	for _, name := range []string{countDone, bulk.Failed, bulk.Unreachable} { // members only
		at.Counts[name] = s.round.Counts[name]
	}
	s.round.Counts = at.Counts
	if err := s.save(ctx); err != nil {
		return err
	}
	pause(ctx, restShare*time.Since(start))
	return ctx.Err()
}

// end ends the round and begins the next one, after a rest, so that a small site is not swept
// all the time. The next one hurries if Redis lost data since this one began. The rest after a
// hurried round does not end early, so that repeated losses do not keep the servers busy.
func (s *sweeper) end(ctx context.Context) error {
	now := time.Now().UnixMilli()
	s.round.Ended, s.round.Took = now, now-s.round.Began
	took := time.Duration(s.round.Took) * time.Millisecond
	pause(ctx, s.options.Round-took)
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.round.Hurried && !s.isBehind() {
		n := s.round.Counts
		s.options.Log.InfoContext(ctx, "missing sets rebuilt", "members", s.round.seen(), "built", n[bulk.Built],
			"failed", n[bulk.Failed], "unreachable", n[bulk.Unreachable], "spared", n[countSpared], "took", took)
	}
	return s.begin(ctx, s.isBehind())
}
