package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// The pauses of a worker after trouble.
const (
	firstClaimPause = 250 * time.Millisecond // after a claim failed; it doubles
	mostClaimPause  = 10 * time.Second
	awayWait        = time.Second // when a server that the tasks need is away
)

// lookAgain is after how long a worker looks again, and again, when it found
// nothing though somebody rang: another one took it, or it was passed over.
func lookAgain() []time.Duration {
	return []time.Duration{10 * time.Millisecond, 100 * time.Millisecond}
}

// worker claims and works until the stop.
func (s *shift) worker(h home) {
	ctx, bed := s.claiming, newSleeper(h.keeper, h.names())
	var rungFor string // the queue into which it looks first
	var soon []time.Duration
	for trouble := 0; ctx.Err() == nil; {
		l, err := s.look(ctx, h, rungFor, trouble)
		switch {
		case err != nil:
			trouble++
			rungFor = l.queue // nobody has looked there yet
			s.idle(ctx, min(firstClaimPause<<min(trouble, 6), mostClaimPause))
		case l.found == nil:
			trouble = 0
			if l.rung {
				soon = lookAgain()
			}
			d := s.options.Poll
			if len(soon) > 0 {
				d, soon = min(d, soon[0]), soon[1:]
			}
			rungFor = s.bell.sleep(ctx, bed, jitter(d))
		default:
			// The next batch is twice as large, and not at once as large as the one that failed.
			trouble, rungFor = max(0, min(trouble, 9)-1), ""
			if !s.run(l.found) {
				s.idle(ctx, awayWait)
			}
		}
	}
	if rungFor != "" { // somebody of another pool may go
		s.bell.RingHere(rungFor)
	}
}

// look is what came of looking into one queue after the other.
type look struct {
	found *batch // nil: nothing
	rung  bool   // somebody had rung for one of the queues
	queue string // the last that was looked into
}

// look claims a batch from the first of the worker's queues that has one. After failed
// claims it asks for half as many tasks each time: with rows of many megabytes, that a
// producer wrote, a claim of a whole batch can outlast its lease.
func (s *shift) look(ctx context.Context, h home, rungFor string, failed int) (l look, err error) {
	l.rung = rungFor != ""
	for _, w := range h.startingWith(rungFor) {
		if !s.pauses.allow(w.Queue) {
			continue
		}
		var rung bool
		l.queue, w.Batch = w.Queue, max(1, w.Batch>>failed)
		l.found, rung, err = s.claim(ctx, w)
		l.rung = l.rung || rung
		if l.found != nil || err != nil {
			break
		}
	}
	return l, err
}

// claim claims a batch, or returns nil when there is none, and tells whether there
// was a ring for the queue. Claims of one queue come one after the other, so that
// batches enter their lanes in the order in which they were claimed; and so that workers
// do not lock each other's tasks.
func (s *shift) claim(ctx context.Context, w Workers) (b *batch, rung bool, err error) {
	turn := s.turns[w.Queue]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	rung = s.bell.looking(w.Queue)
	bounded, cancel := context.WithTimeout(ctx, s.options.Lease) // later, it would be worth nothing
	defer cancel()
	at := time.Now()
	list, err := s.queue.Claim(bounded, w.Queue, w.Batch, s.options.Lease)
	s.report(ctx, at, err, "claim failed", "queue", w.Queue)
	if err != nil || len(list) == 0 {
		return nil, rung, err
	}
	if len(list) == w.Batch { // there may be more
		s.bell.RingHere(w.Queue)
	}
	return newBatch(at, list, s.lanes), rung, nil
}

// idle waits for about d, or until ctx ends.
func (s *shift) idle(ctx context.Context, d time.Duration) {
	_ = sleep(ctx, jitter(d)) // the caller looks at ctx
}

// report tells MySQL how a call ended that began at a time. An error that says nothing
// about whether the server can be used, such as a missing right or column, is logged as
// message, at most once a minute. After ctx has ended, nothing is said.
func (s *shift) report(ctx context.Context, began time.Time, err error, message string, about ...any) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, mysql.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.options.MySQL.Report(ctx, began, err)
	default:
		s.toldMu.Lock()
		defer s.toldMu.Unlock()
		if now := time.Now(); now.Sub(s.told[message]) >= outageEvery {
			s.told[message] = now
			s.log.ErrorContext(ctx, message, append(about, "error", err)...)
		}
	}
}
