package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// errTimeout is the cause when work is cancelled because it took too long.
var errTimeout = errors.New("the work took longer than its limit")

// A task that waits for a service is tried again after an eighth of the time that it has waited, within these bounds: the tries
// of a long outage are few, and the end of an outage is noticed soon.
const (
	minPostponed  = time.Second
	maxPostponed  = 30 * time.Second
	postponeShare = 8
)

// A result is tried to be recorded recordTries times, for recordWait each; while the database is away, until it is back. Then either the
// result is recorded, or a sweep has ended the lease and the task is done again.
const (
	recordTries = 5
	recordPause = 200 * time.Millisecond
	recordWait  = 5 * time.Second
)

// finished is a task with its outcome.
type finished struct {
	Result
	took  time.Duration // 0: it was not begun
	waits bool          // for a service that is away
}

// do runs the tasks of a claim and records their outcomes, unless their handler does not end. It reports whether all wait for a service.
func (r *run) do(c *claim) (wait bool) {
	ctx, lose := context.WithCancelCause(r.works)
	defer lose(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Limit, fmt.Errorf("%w of %v", errTimeout, r.options.Limit))
	defer cancel()
	r.running.Go(func() { r.keep(ctx, c, lose) })
	wait = true
	for _, group := range r.groups(c.tasks) {
		all := r.runGroup(ctx, c, group)
		wait = wait && len(all) > 0 && !slices.ContainsFunc(all, func(f finished) bool { return !f.waits })
		if len(all) > 0 {
			r.record(c, all)
		}
	}
	return wait
}

// groups splits tasks by handler, in their order. A task whose shared attempts are used up comes last, alone.
func (r *run) groups(tasks []Task) (groups [][]Task) {
	by := func(t Task) string {
		if kind, _ := r.of.Kinds.of(t.Kind); r.handlers[t.Kind] != nil {
			return cmp.Or(kind.Group, t.Kind)
		}
		return "" // there is none
	}
	var alone [][]Task
	for _, t := range tasks {
		i := slices.IndexFunc(groups, func(group []Task) bool { return by(group[0]) == by(t) })
		switch {
		case t.Attempts > sharedAttempts: // it may be the end of the process
			alone = append(alone, []Task{t})
		case i >= 0:
			groups[i] = append(groups[i], t)
		default:
			groups = append(groups, []Task{t})
		}
	}
	return append(groups, alone...)
}

// runGroup calls the handler. After a panic it runs the tasks of the group alone, so that only the task that caused it pays. After the end
// of ctx it releases them.
func (r *run) runGroup(ctx context.Context, c *claim, group []Task) (all []finished) {
	if ctx.Err() != nil {
		for _, t := range group {
			all = append(all, finished{Result: Result{Task: t, Err: Later(0, fmt.Errorf("released before it began: %w", context.Cause(ctx)))}})
		}
		return all
	}
	began := time.Now()
	for _, t := range group {
		r.metrics.waitSeconds.WithLabelValues(t.Queue, r.metrics.label(t.Kind)).Observe(max(t.Waited+began.Sub(c.at), 0).Seconds())
	}
	a := r.call(ctx, c, group)
	if a.panicked && len(group) > 1 {
		for i := range group {
			all = append(all, r.runGroup(ctx, c, group[i:i+1])...)
		}
		return all
	}
	for i, o := range a.outcomes {
		f := finished{Result: Result{group[i], o.Err, o.Next}, took: max(time.Since(began), 1)}
		if f.Err != nil {
			f.waits, f.Err = r.excuse(ctx, f.Task, began, f.Err)
		}
		if _, err := r.of.Kinds.Validate(f.Next); err != nil {
			f.Err, f.Next = Permanent(fmt.Errorf("follow-up: %w", err)), nil
		}
		all = append(all, f)
	}
	return all
}

// answer is the answer of a handler: an outcome for each task, or none if it does not end.
type answer struct {
	outcomes []Outcome
	panicked bool
}

// call calls the handler on a goroutine of its own. A handler that does not end soon after its context is left behind, with its tasks.
func (r *run) call(ctx context.Context, c *claim, group []Task) answer {
	answers := make(chan answer, 1)
	go func() { answers <- r.handle(ctx, group) }()
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
	}
	patience := time.NewTimer(c.lease / 2) // as long as the lease lasts, the results can still be recorded
	defer patience.Stop()
	select {
	case a := <-answers:
		return a
	case <-patience.C:
	case <-r.over.Done():
	}
	level := slog.LevelWarn // the handler may be as slow as the machine that lost the lease
	if errors.Is(context.Cause(ctx), errTimeout) {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "handler does not end", "type", group[0].Kind, "count", len(group), "first_task", group[0].ID,
		"cause", context.Cause(ctx), "then", "its tasks are free when their leases run out")
	return answer{}
}

// panicError is a panic of a handler, with its place.
type panicError struct {
	value any
	stack []byte
}

func newPanicError(value any) *panicError { return &panicError{value, debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// handle calls the handler and makes an error of a panic.
func (r *run) handle(ctx context.Context, group []Task) (a answer) {
	all := func(err error) []Outcome { return slices.Repeat([]Outcome{{Err: err}}, len(group)) }
	defer func() {
		if value := recover(); value != nil {
			a = answer{all(newPanicError(value)), true}
		}
	}()
	h := r.handlers[group[0].Kind]
	if h == nil {
		for _, t := range group {
			a.outcomes = append(a.outcomes, Outcome{Err: Permanent(fmt.Errorf("%w: unknown type %q", ErrInvalid, t.Kind))})
		}
		return a
	}
	a.outcomes = h.Handle(ctx, group)
	if len(a.outcomes) != len(group) {
		a.outcomes = all(fmt.Errorf("handler %T answered %d of %d tasks", h, len(a.outcomes), len(group)))
	}
	return a
}

// excuse returns the error of a handler as it counts: the end of the process, a lost lease, deadlocks and a service that is away are no
// fault of a task. waits: a service is away. ctx is the context of the handler, which was called at a time.
func (r *run) excuse(ctx context.Context, t Task, began time.Time, err error) (waits bool, excused error) {
	waits = r.options.Away != nil && r.options.Away(err)
	if !waits && errors.Is(err, ErrUnavailable) {
		r.report(r.works, began, err, "tasks wait for the database")
		waits = true
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStopped), errors.Is(cause, ErrLeaseLost):
		if !markOf(err).uncounted { // else the handler knows when
			err = Later(0, err)
		}
	case waits, mysql.IsRetryable(err): // or it lost too many deadlocks
		// Whole seconds, so that tasks that wait together are written together.
		pause := min(max(minPostponed, t.Claimed.Sub(t.Created)/postponeShare), maxPostponed)
		err = Later(pause.Round(time.Second), err)
	case errors.Is(cause, errTimeout) && !errors.Is(err, errTimeout):
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return waits, err
}

// record logs, counts and stores the outcomes of tasks. Their leases matter no longer to the claim; a task that cannot be recorded runs
// again when the lease of the claim's last task has ended.
func (r *run) record(c *claim, all []finished) {
	results := make([]Result, len(all))
	for i, f := range all {
		results[i] = f.Result
		v, t := Judge(f.Result), f.Task
		if f.took > 0 {
			kind := r.metrics.label(t.Kind)
			r.metrics.runSeconds.WithLabelValues(t.Queue, kind).Observe(f.took.Seconds())
			r.metrics.finished.WithLabelValues(t.Queue, kind, v.label()).Inc()
		}
		about := []any{"task", t.ID, "type", t.Kind, "subject", t.Key, "attempt", t.Attempts, "of", t.MaxAttempts, "error", f.Err}
		switch {
		case v.State == Dead:
			r.log.ErrorContext(r.works, "task is dead", append(about, "then", fmt.Sprintf("when the cause is gone: activityd tasks retry %d", t.ID))...)
		case v.State == Scheduled && !v.Uncounted:
			r.log.WarnContext(r.works, "task failed, and is tried again", about...)
		}
	}
	c.open.Add(-int64(len(all)))
	r.store(results)
}

// store stores results, also when the process is about to stop.
func (r *run) store(results []Result) {
	for try := 1; ; try++ {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.works), recordWait)
		lost, err := r.queue.Finish(ctx, results)
		cancel()
		away := isAway(err)
		if away {
			r.report(r.works, began, err, "results cannot be recorded")
		}
		last := r.over.Err() != nil || try >= recordTries && (!away || r.claiming.Err() != nil)
		switch {
		case mysql.IsRowRefused(err) && len(results) > 1: // a follow-up is refused: try each task
			for i := range results {
				r.store(results[i : i+1])
			}
			return
		case err == nil:
			if lost > 0 && try == 1 { // else the answer to an earlier try may have been lost
				r.log.WarnContext(r.works, "leases lost before the tasks were finished", "count", lost)
				r.metrics.leasesLost.Add(float64(lost))
			}
			return
		case last:
			r.log.ErrorContext(r.works, "results of tasks not recorded", "count", len(results), "error", err,
				"then", "the tasks are run again when their leases run out")
			return
		}
		_ = retry.Sleep(r.over, retry.Jitter(time.Duration(min(try, recordTries))*recordPause))
	}
}
