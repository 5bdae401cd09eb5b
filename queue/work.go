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
)

// errTimeout is the cause of what is cancelled because it took too long.
var errTimeout = errors.New("the work took longer than its limit")

// finished is what became of a task.
type finished struct {
	Result
	took   time.Duration
	begun  bool
	waits  bool // for what cannot be used
	partly bool // and of which another part can
}

// group is what one handler takes together of a share.
type group struct {
	name    string
	handler Handler
	tasks   []Task
}

// runShare runs the tasks of a share and records what became of them; of those whose
// handler does not end, nothing. What is done is recorded before suspects begin:
// that may be the end of the process. It returns false when the tasks wait for what cannot be
// used, so that the worker pauses.
func (r *run) runShare(s share) (healthy bool) {
	ctx, cancel := context.WithTimeoutCause(s.claim.ctx, r.options.Limit, fmt.Errorf("%w of %v", errTimeout, r.options.Limit))
	defer cancel()
	// From the end of ctx on, nothing extends the leases.
	defer context.AfterFunc(ctx, func() { s.claim.release(s.tasks) })()
	healthy = true
	var all []finished
	for _, g := range r.groups(s.tasks) {
		if g.tasks[0].Attempts > 1 && len(all) > 0 {
			healthy = r.settle(s.claim, all) && healthy
			all = nil
		}
		all = append(all, r.runGroup(ctx, s.claim, g)...)
	}
	return r.settle(s.claim, all) && healthy
}

// groups splits tasks by handler, in their order: first
// those that were never tried, then those on their further shared attempts (see
// sharedAttempts), and at last the others, each alone: should one of them panic or
// never end, it harms only itself.
func (r *run) groups(tasks []Task) (groups []group) {
	for n := range sharedAttempts + 1 {
		begin := len(groups)
		for _, t := range tasks {
			if min(max(t.Attempts, 1), sharedAttempts+1) != n+1 {
				continue
			}
			name, h := r.groupOf(t)
			at := slices.IndexFunc(groups[begin:], func(g group) bool { return g.name == name }) + begin
			if at < begin || n == sharedAttempts {
				at = len(groups)
				groups = append(groups, group{name: name, handler: h})
			}
			groups[at].tasks = append(groups[at].tasks, t)
		}
	}
	return groups
}

// groupOf returns the name and the handler of the groups in which a task can be.
func (r *run) groupOf(t Task) (name string, h Handler) {
	if h, known := r.handlers[t.Kind]; known {
		k, _ := r.kinds.of(t.Kind)
		return cmp.Or(k.Group, t.Kind), h
	}
	return "", unknownKind{}
}

// unknownKind is the handler of the kinds that have none.
type unknownKind struct{}

func (unknownKind) Handle(_ context.Context, batch []Task) []Outcome {
	all := make([]Outcome, len(batch))
	for i, t := range batch {
		all[i].Err = Permanent(fmt.Errorf("%w: unknown type %q", ErrInvalid, t.Kind))
	}
	return all
}

// runGroup calls the handler. When it panics, the tasks are run one by one, so that
// only the one that caused it pays. What would begin after the end of ctx is handed
// back.
func (r *run) runGroup(ctx context.Context, c *claim, g group) (all []finished) {
	if ctx.Err() != nil {
		for _, result := range handBack(g.tasks, 0, context.Cause(ctx)) {
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
			f.waits, f.partly = r.waits(t, start, f.Err)
			f.Err = classify(ctx, f.waits, f.Err, t)
		}
		if _, err := r.kinds.Validate(f.Next); err != nil {
			f.Result = Result{Task: t, Err: Permanent(fmt.Errorf("follow-up: %w", err))}
		}
		all = append(all, f)
	}
	return all
}

// call calls the handler on a goroutine of its own: one that does not end soon after
// its context is left behind, with its tasks.
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
	level := slog.LevelWarn // the handler may be as slow as the machine is that lost the lease
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

// handBack returns the results of tasks that were not begun: another worker may
// have them after a pause, and no attempt is counted.
func handBack(list []Task, pause time.Duration, cause error) []Result {
	results := make([]Result, len(list))
	for i, t := range list {
		results[i] = Result{Task: t, Err: Later(pause, fmt.Errorf("handed back before it began: %w", cause))}
	}
	return results
}
