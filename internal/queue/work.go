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
	took     time.Duration
	begun    bool
	waits    bool
	waitsFor *dependency // nil: for MySQL, if it waits
}

// group is what one handler takes together of a share.
type group struct {
	name    string
	handler Handler
	tasks   []Task
}

// suspect reports whether its tasks were tried before.
func (g group) suspect() bool { return g.tasks[0].Attempts > 1 }

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
		if g.suspect() && len(all) > 0 {
			healthy = r.settle(s.claim, all) && healthy
			all = nil
		}
		all = append(all, r.runGroup(ctx, s.claim, g)...)
	}
	return r.settle(s.claim, all) && healthy
}

// groups splits tasks by handler and keeps those of one ordering key in their order: first
// those that were never tried, then those on their further shared attempts (see
// [SharedAttempts]), and at last the others, each alone: should one of them panic or
// never end, it harms only itself.
func (r *run) groups(tasks []Task) (groups []group) {
	byAttempt := make([][]Task, SharedAttempts+1)
	for _, t := range tasks {
		n := min(max(t.Attempts, 1), SharedAttempts+1)
		byAttempt[n-1] = append(byAttempt[n-1], t)
	}
	for _, some := range byAttempt[:SharedAttempts] {
		groups = append(groups, r.groupsOf(some)...)
	}
	for _, t := range byAttempt[SharedAttempts] {
		name, h := r.handlerOf(t)
		groups = append(groups, group{name, h, []Task{t}})
	}
	return groups
}

// groupsOf is groups for tasks that have been tried equally often.
func (r *run) groupsOf(tasks []Task) (groups []group) {
	last := make(map[orderingKey]int) // the group of the key's latest task
	for _, t := range tasks {
		name, h := r.handlerOf(t)
		key, ordered := r.kinds.orderingKeyOf(t)
		at := last[key]
		for at < len(groups) && groups[at].name != name {
			at++
		}
		if at == len(groups) {
			groups = append(groups, group{name: name, handler: h})
		}
		groups[at].tasks = append(groups[at].tasks, t)
		if ordered {
			last[key] = at
		}
	}
	return groups
}

// handlerOf returns the handler of a task, and the name of the kinds that it takes together.
func (r *run) handlerOf(t Task) (name string, h Handler) {
	h, ok := r.handlers[t.Kind]
	if !ok {
		return "", unknownKind{}
	}
	k, _ := r.kinds.of(t.Kind)
	return cmp.Or(k.Group, t.Kind), h
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
		r.kinds.countStarted(t, t.Waited+start.Sub(c.at))
	}
	outcomes, ended := r.call(ctx, c, g)
	var panicked *panicError
	switch {
	case !ended:
		return nil
	case len(g.tasks) > 1 && errors.As(outcomes[0].Err, &panicked):
		for _, t := range g.tasks {
			all = append(all, r.runGroup(ctx, c, group{g.name, g.handler, []Task{t}})...)
		}
		return all
	}
	took := time.Since(start)
	for i, t := range g.tasks {
		o := outcomes[i]
		waitsFor, waits := r.waits(t, start, o.Err)
		o.Err = classify(ctx, waits, o.Err, c.pause)
		if _, err := ValidateNext(o.Next); err != nil {
			o = Outcome{Err: Permanent(fmt.Errorf("follow-up: %w", err))}
		}
		all = append(all, finished{Result{t, o.Err, o.Next}, took, true, waits, waitsFor})
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
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// handle calls the handler and makes an error of a panic.
func handle(ctx context.Context, h Handler, batch []Task) (outcomes []Outcome) {
	all := func(err error) []Outcome {
		return slices.Repeat([]Outcome{{Err: err}}, len(batch))
	}
	defer func() {
		if value := recover(); value != nil {
			outcomes = all(&panicError{value, debug.Stack()})
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
