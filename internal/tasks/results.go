package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
)

// settle tells and records what became of tasks. It returns false when a server
// that they need is away.
func (s *shift) settle(b *batch, all []ran) (healthy bool) {
	healthy = true
	results := make([]Result, len(all))
	for i, r := range all {
		results[i] = r.Result
		if isAway(r.Err) {
			healthy = false
			server := s.options.Redis
			if errors.Is(r.Err, mysql.ErrUnavailable) {
				server = s.options.MySQL
			}
			server.Report(s.work, time.Now().Add(-r.took), r.Err)
		}
		if r.begun {
			s.options.Observer.Finished(r.Task.Queue, r.Task.Type, judge(r.Result).outcome(), r.took)
		}
		s.logFailure(r.Result)
	}
	s.record(b, results)
	return healthy
}

// outcome is the verdict in the words of the [Observer].
func (v verdict) outcome() Outcome {
	switch v.kind {
	case retry:
		return OutcomeRetried
	case postpone:
		return OutcomePostponed
	case bury:
		return OutcomeDied
	case done:
	}
	return OutcomeDone
}

// awayPause is how long at most tasks wait for a server that is away.
const awayPause = 2 * time.Second

// classify spares tasks for what is not their fault: a server that is away, the
// end of the process, a lost lease, deadlocks. ctx is what the work ran under.
func classify(ctx context.Context, err error, pause time.Duration) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, errStopped), errors.Is(cause, errLeaseLost):
		return Later(0, err)
	case isAway(err):
		return Later(pause, err)
	case mysql.IsRetryable(err): // it lost against others too often
		return Later(pause, err)
	case errors.Is(cause, errOutlasted) && !errors.Is(err, errOutlasted):
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func isAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrSettings) || errors.Is(err, mysql.ErrUnavailable)
}

// logFailure says what failed, and what becomes of it.
func (s *shift) logFailure(r Result) {
	kind := judge(r).kind
	if kind != retry && kind != bury {
		return
	}
	t := r.Task
	about := []any{"task", t.ID, "type", t.Type, "subject", t.Subject.String(), "attempt", t.Attempts, "of", t.MaxAttempts, "error", r.Err}
	if kind == retry {
		s.log.WarnContext(s.work, "task failed, and is tried again", about...)
		return
	}
	s.log.ErrorContext(s.work, "task is dead: it is not tried any more, and what it was to do is not done",
		append(about, "then", fmt.Sprintf("when the cause is gone: activityd tasks retry --id %d", t.ID))...)
}

// These bound how long results are tried to be recorded. After that the leases
// run out, and the tasks are done again, which does no harm.
const (
	recordTries = 5
	recordPause = 200 * time.Millisecond
	recordWait  = 5 * time.Second
)

// record records results even when the process is about to stop, though then it
// tries only once.
func (s *shift) record(b *batch, results []Result) {
	if len(results) == 0 {
		return
	}
	b.release(results)
	for try := 1; ; try++ {
		began := time.Now()
		lost, err := s.finish(results)
		if errors.Is(err, mysql.ErrUnavailable) {
			s.options.MySQL.Report(s.work, began, err)
		}
		switch {
		case err == nil && lost > 0:
			s.log.WarnContext(s.work, "leases were lost before the tasks were finished", "count", lost)
			s.options.Observer.LeasesLost(lost)
			return
		case err == nil:
			return
		case (try == recordTries || s.over.Err() != nil) && errors.Is(err, mysql.ErrUnavailable):
			return // the log has the outage
		case try == recordTries || s.over.Err() != nil:
			s.log.ErrorContext(s.work, "results of tasks could not be recorded, they will be run again", "count", len(results), "error", err)
			return
		}
		s.idle(s.over, time.Duration(try)*recordPause)
	}
}

func (s *shift) finish(results []Result) (lost int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.work), recordWait)
	defer cancel()
	return s.queue.Finish(ctx, results)
}
