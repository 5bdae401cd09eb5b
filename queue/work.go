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

// A task that waits for a dependency is tried again after an eighth of the time that it has waited, within these bounds: the tries
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
	took  time.Duration
	begun bool
	waits bool // for a dependency, or the database
}

// group is a part of a share that a handler takes together.
type group struct {
	name    string
	handler Handler
	tasks   []Task
}

// runShare runs the tasks of a share and records their outcomes, unless their handler does not end. It returns whether all tasks wait
// for a dependency.
func (r *run) runShare(s share) (waits bool) {
	ctx, cancel := context.WithTimeoutCause(s.claim.ctx, r.options.Limit, fmt.Errorf("%w of %v", errTimeout, r.options.Limit))
	defer cancel()
	// From the end of ctx on, nothing extends the leases.
	defer context.AfterFunc(ctx, func() { s.claim.release(s.tasks) })()
	var all []finished
	goOn := false
	record := func() {
		for _, f := range all {
			waits, goOn = waits || f.waits, goOn || !f.waits
		}
		r.record(s.claim, all)
		all = nil
	}
	for _, g := range r.groups(s.tasks) {
		if g.tasks[0].Attempts > sharedAttempts { // it may be the end of the process
			record()
		}
		all = append(all, r.runGroup(ctx, s.claim, g)...)
	}
	record()
	return waits && !goOn
}

// groups splits tasks by handler, in their order. The tasks whose shared attempts are used up come last, each alone.
func (r *run) groups(tasks []Task) (groups []group) {
	var alone []group
	for _, t := range tasks {
		g := group{name: "", handler: unknownKind{}, tasks: []Task{t}}
		if h, known := r.handlers[t.Kind]; known {
			kind, _ := r.kinds.of(t.Kind)
			g.name, g.handler = cmp.Or(kind.Group, t.Kind), h
		}
		at := slices.IndexFunc(groups, func(o group) bool { return o.name == g.name })
		switch {
		case t.Attempts > sharedAttempts:
			alone = append(alone, g)
		case at < 0:
			groups = append(groups, g)
		default:
			groups[at].tasks = append(groups[at].tasks, t)
		}
	}
	return append(groups, alone...)
}

// unknownKind is the handler of kinds without a handler.
type unknownKind struct{}

func (unknownKind) Handle(_ context.Context, batch []Task) []Outcome {
	all := make([]Outcome, len(batch))
	for i, t := range batch {
		all[i].Err = Permanent(fmt.Errorf("%w: unknown type %q", ErrInvalid, t.Kind))
	}
	return all
}

// runGroup calls the handler. After a panic it runs the tasks of the group alone, so that only the task that caused it pays. After the end
// of ctx it releases them.
func (r *run) runGroup(ctx context.Context, c *claim, g group) (all []finished) {
	if ctx.Err() != nil {
		for _, result := range released(g.tasks, context.Cause(ctx)) {
			all = append(all, finished{Result: result})
		}
		return all
	}
	start := time.Now()
	for _, t := range g.tasks {
		r.metrics.waitSeconds.WithLabelValues(t.Queue, r.metrics.label(r.kinds, t.Kind)).Observe(max(t.Waited+start.Sub(c.at), 0).Seconds())
	}
	outcomes, ended := r.call(ctx, c, g)
	var panicked *panicError
	switch {
	case !ended:
		return nil
	case len(g.tasks) > 1 && errors.As(outcomes[0].Err, &panicked) && panicked.all:
		for _, t := range g.tasks {
			all = append(all, r.runGroup(ctx, c, group{g.name, g.handler, []Task{t}})...)
		}
		return all
	}
	took := time.Since(start)
	for i, t := range g.tasks {
		f := finished{Result: Result{t, outcomes[i].Err, outcomes[i].Next}, took: took, begun: true}
		if f.Err != nil {
			f.waits = r.waits(t, start, f.Err)
			f.Err = classify(ctx, f.waits, f.Err, t)
		}
		if _, err := r.kinds.Validate(f.Next); err != nil {
			f.Result = Result{Task: t, Err: Permanent(fmt.Errorf("follow-up: %w", err))}
		}
		all = append(all, f)
	}
	return all
}

// call calls the handler on a goroutine of its own. A handler that does not end soon after its context is left behind, with its tasks.
func (r *run) call(ctx context.Context, c *claim, g group) (outcomes []Outcome, ended bool) {
	answer := make(chan []Outcome, 1)
	go func() { answer <- handle(ctx, g.handler, g.tasks) }()
	select {
	case outcomes = <-answer:
		return outcomes, true
	case <-ctx.Done():
	}
	// As long as the lease lasts, the results can still be recorded.
	patience := time.NewTimer(c.lease / 2)
	defer patience.Stop()
	select {
	case outcomes = <-answer:
		return outcomes, true
	case <-patience.C:
	case <-r.over.Done():
	}
	const maxIDs = 20 // in the log
	var ids []uint64
	for _, t := range g.tasks[:min(len(g.tasks), maxIDs)] {
		ids = append(ids, t.ID)
	}
	level := slog.LevelWarn // the handler may be as slow as the machine that lost the lease
	if errors.Is(context.Cause(ctx), errTimeout) {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "handler does not end", "type", g.tasks[0].Kind, "count", len(g.tasks), "tasks", ids,
		"cause", context.Cause(ctx), "then", "its tasks are free when their leases run out")
	return nil, false
}

// panicError is a panic of a handler, with its place.
type panicError struct {
	value any
	stack []byte
	all   bool // it ended the work of the whole batch
}

func newPanicError(value any) *panicError { return &panicError{value: value, stack: debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// handle calls the handler and makes an error of a panic.
func handle(ctx context.Context, h Handler, batch []Task) (outcomes []Outcome) {
	all := func(err error) []Outcome {
		return slices.Repeat([]Outcome{{Err: err}}, len(batch))
	}
	defer func() {
		if value := recover(); value != nil {
			panicked := newPanicError(value)
			panicked.all = true
			outcomes = all(panicked)
		}
	}()
	outcomes = h.Handle(ctx, batch)
	if len(outcomes) != len(batch) {
		return all(fmt.Errorf("handler %T answered %d of %d tasks", h, len(outcomes), len(batch)))
	}
	return outcomes
}

// released returns the results of tasks that were not begun: they wait again, and no attempt is counted.
func released(list []Task, cause error) []Result {
	results := make([]Result, len(list))
	for i, t := range list {
		results[i] = Result{Task: t, Err: Later(0, fmt.Errorf("released before it began: %w", cause))}
	}
	return results
}

// waits reports whether a task whose handler was called at a time has to wait, by the error of the handler.
func (r *run) waits(t Task, began time.Time, err error) bool {
	kind, _ := r.kinds.of(t.Kind)
	for _, name := range kind.Needs {
		if d := r.options.Needs[name]; d != nil && d.Waits(err) {
			return true
		}
	}
	if !errors.Is(err, ErrUnavailable) {
		return false
	}
	r.report(r.works, began, err, "tasks wait for the database")
	return true
}

// classify excuses tasks for the end of the process, a lost lease, deadlocks, and a dependency that is away. ctx is the context of the
// handler.
func classify(ctx context.Context, waits bool, err error, t Task) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStopped), errors.Is(cause, ErrLeaseLost):
		if _, ok := errors.AsType[*laterError](err); ok { // the handler knows when
			return err
		}
		return Later(0, err)
	case waits, mysql.IsRetryable(err): // or it lost too many deadlocks
		// Whole seconds, so that tasks that wait together are written together.
		pause := min(max(minPostponed, t.Claimed.Sub(t.Created)/postponeShare), maxPostponed)
		return Later(pause.Round(time.Second), err)
	case errors.Is(cause, errTimeout) && !errors.Is(err, errTimeout):
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// record logs, counts and stores the outcomes of tasks.
func (r *run) record(c *claim, all []finished) {
	if len(all) == 0 {
		return
	}
	results, tasks := make([]Result, len(all)), make([]Task, len(all))
	for i, f := range all {
		results[i], tasks[i] = f.Result, f.Task
		v, t := Judge(f.Result), f.Task
		if f.begun {
			kind := r.metrics.label(r.kinds, t.Kind)
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
	c.release(tasks)
	r.store(results)
}

// store stores results, whose leases are not extended any more, also when the process is about to stop.
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
		case err == nil && lost > 0 && try == 1: // else the answer to an earlier try may have been lost
			r.log.WarnContext(r.works, "leases lost before the tasks were finished", "count", lost)
			r.metrics.leasesLost.Add(float64(lost))
			return
		case err == nil:
			return
		case last:
			r.log.ErrorContext(r.works, "results of tasks not recorded", "count", len(results), "error", err,
				"then", "the tasks are run again when their leases run out")
			return
		}
		_ = retry.Sleep(r.over, retry.Jitter(time.Duration(min(try, recordTries))*recordPause))
	}
}
