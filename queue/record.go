package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// Dependency is what handlers need beside MySQL, such as the nodes of a cluster. Kinds of task name
// those that they need: [Kind].Needs. While it cannot be used, or a part of it, the tasks that need
// it are postponed, and no attempt is counted. Its methods must not block, and must be safe for
// concurrent use.
type Dependency interface {
	// Waits reports whether the error of a handler says that the task has to wait for it. It is
	// called once for each error.
	Waits(err error) bool
	// Partly reports whether some parts can be used and others cannot: workers then go on with the
	// tasks of the former.
	Partly() bool
}

// A task that waits for what cannot be used is tried again after an eighth of the time that it has waited, but for these bounds:
// however long an outage, the tries are few, and one that is over is noticed soon.
const (
	minPostponed  = time.Second
	maxPostponed  = 30 * time.Second
	postponeShare = 8
)

// waits reports whether a task whose handler was called at a time has to wait, by the handler's
// error, and whether workers may go on with others.
func (r *run) waits(t Task, began time.Time, err error) (waits, partly bool) {
	k, _ := r.kinds.of(t.Kind)
	for _, name := range k.Needs {
		if d := r.options.Needs[name]; d != nil && d.Waits(err) {
			return true, d.Partly()
		}
	}
	if !errors.Is(err, mysql.ErrUnavailable) {
		return false, false
	}
	r.options.MySQL.Report(r.works, began, err)
	return true, false
}

// settle logs, counts and records what became of tasks. It returns false when all of them wait for
// what cannot be used at all.
func (r *run) settle(c *claim, all []finished) (healthy bool) {
	healthy = len(all) == 0
	results, tasks := make([]Result, len(all)), make([]Task, len(all))
	for i, f := range all {
		healthy = healthy || !f.waits || f.partly
		v, t := Judge(f.Result), f.Task
		if f.begun {
			kind := r.metrics.label(r.kinds, t.Kind)
			r.metrics.runSeconds.WithLabelValues(t.Queue, kind).Observe(f.took.Seconds())
			r.metrics.finished.WithLabelValues(t.Queue, kind, v.label()).Inc()
		}
		if v.State != Done && !v.Uncounted {
			r.logFailure(f.Result, v)
		}
		results[i], tasks[i] = f.Result, t
	}
	c.release(tasks)
	r.store(results)
	return healthy
}

// classify spares tasks for what is not their fault: that they wait for a dependency (see waits), the
// end of the process, a lost lease, deadlocks. ctx is what the work ran under.
func classify(ctx context.Context, waits bool, err error, t Task) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStopped), errors.Is(cause, ErrLeaseLost):
		if _, ok := errors.AsType[*laterError](err); ok { // the handler knows when
			return err
		}
		return Later(0, err)
	case waits, mysql.IsRetryable(err): // or it lost against others too often
		// Whole seconds, so that what waits together is written together.
		pause := min(max(minPostponed, t.Claimed.Sub(t.Created)/postponeShare), maxPostponed)
		return Later(pause.Round(time.Second), err)
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
// end of that it tries only once.
func (r *run) store(results []Result) {
	if len(results) == 0 {
		return
	}
	for try := 1; ; try++ {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.works), recordWait)
		lost, err := r.queue.Finish(ctx, results)
		cancel()
		if errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			r.options.MySQL.Report(r.works, began, err)
		}
		last := try >= recordTries && (!r.options.MySQL.Failing() || r.claiming.Err() != nil) || r.over.Err() != nil
		switch {
		case mysql.IsRowRefused(err) && len(results) > 1: // a follow-up is refused: it concerns one of them
			for _, one := range results {
				r.store([]Result{one})
			}
			return
		case err == nil && lost > 0 && try == 1: // else the answer to an earlier try may have been lost
			r.log.WarnContext(r.works, "leases lost before the tasks were finished", "count", lost)
			r.metrics.leasesLost.Add(float64(lost))
			return
		case err == nil:
			return
		case last && errors.Is(err, mysql.ErrUnavailable):
			return // the log has the outage
		case last:
			r.log.ErrorContext(r.works, "results of tasks not recorded", "count", len(results), "error", err,
				"then", "the tasks are run again when their leases run out")
			return
		}
		_ = retry.Sleep(r.over, retry.Jitter(time.Duration(min(try, recordTries))*recordPause))
	}
}

// sweep keeps sweeping until the stop.
func (r *run) sweep() {
	ctx := r.claiming
	for ctx.Err() == nil {
		began := time.Now()
		swept, err := r.queue.Sweep(ctx)
		r.report(ctx, began, err, "sweep failed")
		if swept.TookOver > 0 {
			r.log.WarnContext(ctx, "leases ran out", "count", swept.TookOver,
				"then", "their tasks are free again, or dead after their last attempt")
			r.metrics.takeovers.Add(float64(swept.TookOver))
		}
		if swept.Due+swept.TookOver > 0 {
			r.notifier.NotifyAllLocal()
		}
		switch {
		case err != nil:
			_ = retry.Sleep(ctx, retry.Jitter(8*r.options.Sweep))
		case !swept.More:
			_ = retry.Sleep(ctx, retry.Jitter(r.options.Sweep))
		}
	}
}

// report notes how a call to MySQL ended that began at a time. An error that says nothing
// about whether the server can be used, such as a missing right or column, is logged as
// message, at most once a minute. After ctx has ended, nothing is said.
func (r *run) report(ctx context.Context, began time.Time, err error, message string, about ...any) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, mysql.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		r.options.MySQL.Report(ctx, began, err)
	case r.lines.may(message):
		r.log.ErrorContext(ctx, message, append(about, "error", err)...)
	}
}

// lines bounds the lines of a log to one a minute for each message.
type lines struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (l *lines) may(message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last[message]) < time.Minute {
		return false
	}
	if l.last == nil {
		l.last = make(map[string]time.Time)
	}
	l.last[message] = time.Now()
	return true
}

// health is what a pool knows of its database that is told nothing else: as the last call found it.
type health struct {
	lines

	log     *slog.Logger
	failing atomic.Bool
}

// Report implements [Health].
func (h *health) Report(ctx context.Context, _ time.Time, err error) {
	const away, back = "server cannot be used", "server can be used again"
	switch was := h.failing.Swap(err != nil); {
	case err != nil && h.may(away):
		h.log.WarnContext(ctx, away, "server", "MySQL", "error", err)
	case err == nil && was && h.may(back):
		h.log.WarnContext(ctx, back, "server", "MySQL")
	}
}

// Failing implements [Health].
func (h *health) Failing() bool { return h.failing.Load() }
