package tasks

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
)

// work runs a claimed batch and records its results. It returns false when a
// server that the tasks need is away, so that the worker pauses.
func (p *Pool) work(ctx context.Context, batch []Task) (healthy bool) {
	// Work ends before its lease does: beyond, the task is another's.
	bounded, cancel := context.WithTimeoutCause(ctx, p.options.Lease*4/5, errOutlasted)
	defer cancel()
	var results []Result
	for _, group := range p.groups(batch) {
		results = append(results, p.runGroup(bounded, group)...)
	}
	var away []error
	pause := jitter(awayPause) // one for all: they are written together
	for i, r := range results {
		if isAway(r.Err) {
			away = append(away, r.Err)
		}
		results[i].Err = classify(bounded, r.Err, pause)
		p.logFailure(ctx, r.Task, results[i].Err)
	}
	if len(away) > 0 {
		p.log.WarnContext(ctx, "tasks wait for a server that is away", "count", len(away), "error", away[0])
	}
	p.finish(ctx, results)
	return len(away) == 0
}

var errOutlasted = errors.New("the work took longer than its lease allows")

// group is the part of a batch that one handler takes together.
type group struct {
	handler Handler
	tasks   []Task
}

// groups splits a batch by handler, in order of first appearance.
func (p *Pool) groups(batch []Task) []group {
	var groups []group
	place := make(map[Handler]int)
	for _, t := range batch {
		h, ok := p.handlers[t.Type]
		if !ok {
			h = unknownType{}
		}
		at, ok := place[h]
		if !ok {
			at = len(groups)
			place[h] = at
			groups = append(groups, group{handler: h})
		}
		groups[at].tasks = append(groups[at].tasks, t)
	}
	return groups
}

// unknownType buries what no handler knows.
type unknownType struct{}

func (unknownType) Handle(_ context.Context, batch []Task) []error {
	errs := make([]error, len(batch))
	for i, t := range batch {
		errs[i] = Permanent(fmt.Errorf("%w: unknown type %q", ErrInvalid, t.Type))
	}
	return errs
}

// runGroup hands the group to its handler. When that panics, the tasks are run
// one by one, so that only the poisoned one pays.
func (p *Pool) runGroup(ctx context.Context, g group) []Result {
	errs, panicked := handle(ctx, g.handler, g.tasks)
	if panicked && len(g.tasks) > 1 {
		var results []Result
		for _, t := range g.tasks {
			results = append(results, p.runGroup(ctx, group{g.handler, []Task{t}})...)
		}
		return results
	}
	results := make([]Result, len(g.tasks))
	for i, t := range g.tasks {
		results[i] = Result{Task: t, Err: errs[i]}
	}
	return results
}

// handle calls the handler and makes of a panic an error that names its place.
func handle(ctx context.Context, h Handler, batch []Task) (errs []error, panicked bool) {
	defer func() {
		if value := recover(); value != nil {
			err := fmt.Errorf("panic: %v\n%s", value, debug.Stack())
			errs, panicked = make([]error, len(batch)), true
			for i := range errs {
				errs[i] = err
			}
		}
	}()
	return h.Handle(ctx, batch), false
}

// awayPause is how long at most tasks wait for a server that is away.
const awayPause = 2 * time.Second

// classify spares tasks for what is not their fault: a server that is away, the
// end of the process, deadlocks. ctx is what the work ran under.
func classify(ctx context.Context, err error, pause time.Duration) error {
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errStopped):
		return Later(0, err)
	case isAway(err):
		return Later(pause, err)
	case contacts.IsRetryable(err): // it lost against others too often
		return Later(pause, err)
	}
	return err
}

func isAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrSettings) || errors.Is(err, contacts.ErrUnavailable)
}

func (p *Pool) logFailure(ctx context.Context, t Task, err error) {
	if _, later := errors.AsType[*laterError](err); later || err == nil {
		return
	}
	p.log.WarnContext(ctx, "task failed", "task", t.ID, "type", t.Type, "subject", t.Subject.String(),
		"attempt", t.Attempts, "of", t.MaxAttempts, "error", err)
}

// finishTries and finishPause bound how long the results of a batch are tried to
// be recorded; after that its leases run out, and the tasks are done again,
// which does no harm.
const (
	finishTries = 5
	finishPause = 200 * time.Millisecond
)

// finish records results even when the process is about to stop.
func (p *Pool) finish(ctx context.Context, results []Result) {
	ctx = context.WithoutCancel(ctx)
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		lost, err := p.queue.Finish(bounded, results)
		cancel()
		switch {
		case err == nil && lost > 0:
			p.log.WarnContext(ctx, "leases were lost before the tasks were finished", "count", lost)
			return
		case err == nil:
			return
		case try == finishTries:
			p.log.ErrorContext(ctx, "results of tasks could not be recorded, they will be run again", "count", len(results), "error", err)
			return
		}
		p.idle(ctx, nil, time.Duration(try)*finishPause)
	}
}
