package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// settle logs, counts and records what became of tasks. It returns false when all of them wait for
// what cannot be used at all.
func (r *run) settle(c *claim, all []finished) (healthy bool) {
	healthy = len(all) == 0
	for _, f := range all {
		healthy = healthy || !f.waits || f.waitsFor != nil && f.waitsFor.Partly()
	}
	results, tasks := make([]Result, len(all)), make([]Task, len(all))
	for i, f := range all {
		v, t := Judge(f.Result), f.Task
		if f.begun {
			kind := r.kinds.label(t.Kind)
			r.metrics.runSeconds.WithLabelValues(t.Queue, kind).Observe(f.took.Seconds())
			r.metrics.finished.WithLabelValues(t.Queue, kind, v.label()).Inc()
		}
		if v.State != Done && !v.Uncounted {
			r.logFailure(f.Result, v)
		}
		if healthy && f.waitsFor != nil {
			f.waitsFor.takeTurn(&f.Result)
		}
		results[i], tasks[i] = f.Result, t
	}
	c.release(tasks)
	r.store(results, false)
	return healthy
}

// maxPause is how long at most tasks wait for a dependency that cannot be used; see takeTurn.
const maxPause = 2 * time.Second

// classify spares tasks for what is not their fault: that they wait for a dependency (see waits), the
// end of the process, a lost lease, deadlocks. ctx is what the work ran under.
func classify(ctx context.Context, waits bool, err error, pause time.Duration) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStopped), errors.Is(cause, ErrLeaseLost):
		if _, ok := errors.AsType[*laterError](err); ok { // the handler knows when
			return err
		}
		return Later(0, err)
	case waits, mysql.IsRetryable(err): // or it lost against others too often
		return Later(pause, err)
	case errors.Is(cause, errTimeout) && !errors.Is(err, errTimeout):
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// logFailure says what failed, and what becomes of it.
func (r *run) logFailure(result Result, v Verdict) {
	t := result.Task
	about := []any{"task", t.ID, "type", t.Kind, "subject", t.Key, "attempt", t.Attempts, "of", t.MaxAttempts, "error", result.Err}
	if v.State == Scheduled {
		r.log.WarnContext(r.works, "task failed, and is tried again", about...)
		return
	}
	r.log.ErrorContext(r.works, "task is dead", append(about, "then", fmt.Sprintf("when the cause is gone: activityd tasks retry %d", t.ID))...)
}

// These bound how long results are tried to be recorded while the database answers other
// calls, or the process is about to stop. After that the leases run out, and the tasks are done
// again, which does no harm. While the database is away they are tried until it is back: a
// task that is done must not hold up others until its lease ends.
const (
	recordTries = 5
	recordPause = 200 * time.Millisecond
	recordWait  = 5 * time.Second
)

// store records results, whose leases are not extended any more, even when the process is about to stop, though at the
// end of that it tries only once. If uncertain, the leases may not be held: they were claimed, or
// recorded, by a call whose answer was lost.
func (r *run) store(results []Result, uncertain bool) {
	if len(results) == 0 {
		return
	}
	for try := 1; ; try, uncertain = try+1, true {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.works), recordWait)
		lost, err := r.queue.Finish(ctx, results)
		cancel()
		if errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			r.options.MySQL.Report(r.works, began, err)
		}
		if r.options.MySQL.Failing() && r.claiming.Err() == nil {
			try = min(try, recordTries-1)
		}
		switch {
		case mysql.IsRowRefused(err) && len(results) > 1: // a follow-up is refused: it concerns one of them
			for _, one := range results {
				r.store([]Result{one}, uncertain)
			}
			return
		case err == nil && lost > 0 && !uncertain:
			r.log.WarnContext(r.works, "leases lost before the tasks were finished", "count", lost)
			r.metrics.leasesLost.Add(float64(lost))
			return
		case err == nil:
			return
		case (try == recordTries || r.over.Err() != nil) && errors.Is(err, mysql.ErrUnavailable):
			return // the log has the outage
		case try == recordTries || r.over.Err() != nil:
			r.log.ErrorContext(r.works, "results of tasks not recorded", "count", len(results), "error", err,
				"then", "the tasks are run again when their leases run out")
			return
		}
		_ = retry.Sleep(r.over, retry.Jitter(time.Duration(try)*recordPause))
	}
}
