package audit

import (
	"context"
	"slices"
	"sync"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
)

// Batch sizes of a hurried round, and batches at once. It is as fast as the servers bear it.
const (
	hurryBatch    = 128
	spareBatch    = 1024 // members that are listed at once where most sets cannot have been lost
	hurryParallel = 4
	hurryTries    = 10 // of one member, as updates of its set may conflict
)

// isBehind reports whether sets are to be built because Redis lost data since the round
// began.
func (s *sweeper) isBehind() bool { return s.options.Build != nil && s.options.LostAt() > s.round.Lost }

// isOvertaken reports whether the round should give way to a hurried one. A hurried
// round goes on, and another one follows: each set is looked at as soon as if it began
// again, and a Redis that loses data all the time cannot keep it from its end.
func (s *sweeper) isOvertaken() bool { return s.isBehind() && !s.round.Hurried }

// untilLoss returns a context that ends when Redis lost data since the round began, and
// what ends it otherwise.
func (s *sweeper) untilLoss(ctx context.Context) (bounded context.Context, end func()) {
	bounded, cancel := context.WithCancel(ctx)
	if s.options.Build == nil {
		return bounded, cancel
	}
	last := s.round.Lost // the next round may begin before the goroutine ends
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		for s.options.LostAt() <= last && bounded.Err() == nil {
			pause(bounded, s.options.Tick)
		}
	})
	return bounded, func() {
		cancel()
		watching.Wait()
	}
}

// rebuild does a hurried round.
func (s *sweeper) rebuild(ctx context.Context) error {
	if err := s.build(ctx); err != nil {
		return err
	}
	setsUnreachable.WithLabelValues(OfSweep).Add(float64(s.round.Counts[bulk.Unreachable]))
	if s.round.Counts[bulk.Unreachable]+s.round.Counts[bulk.Failed] == 0 {
		s.round.Since = s.round.Lost
		s.since = max(s.since, s.round.Since)
	}
	return nil
}

// build builds the sets that are missing of the members after the round's position. Those
// on a node that stays away are left out: when it comes back empty, or with data that may be
// old, that is another loss. In a cluster it skips those that cannot have been lost since all
// were built.
func (s *sweeper) build(ctx context.Context) error {
	pacer := bulk.NewPacer(bulk.PacerOptions{Parallel: hurryParallel, Probes: s.options.Probes})
	pacing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { pacer.Run(pacing) })
	defer running.Wait()
	defer stop()
	w := bulk.Walk{Batch: hurryBatch, Pacer: pacer, Tries: hurryTries, Patience: s.options.Patience, Visit: s.visitLost}
	if s.round.Since > 0 {
		w.Batch = spareBatch
	}
	return s.goOn(ctx, w)
}

// visitLost builds the missing sets of those members whose sets may have been lost since
// all were built, some at a time.
func (s *sweeper) visitLost(ctx context.Context, members []member.ID) (done bulk.Counts, left []member.ID, err error) {
	since := s.round.Since // nothing changes it during the walk
	lost := slices.DeleteFunc(slices.Clone(members), func(id member.ID) bool { return !s.options.LostSince(id, since) })
	spared := int64(len(members) - len(lost))
	done = bulk.Counts{countDone: spared, countSpared: spared}
	for some := range slices.Chunk(lost, hurryBatch) {
		if err != nil && !bulk.IsNodeAway(err) { // a node that is away may not concern the others
			left = append(left, some...)
			continue
		}
		built, failed, failure := s.options.Build(ctx, some)
		if failure != nil && len(failed) == 0 { // it concerns them all
			built, failed = nil, some
		}
		setsBuilt.Add(float64(built[bulk.Built]))
		done.Add(built)
		if left = append(left, failed...); failure != nil {
			err = failure
		}
	}
	return done, left, err
}
