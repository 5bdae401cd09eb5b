package tasks

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// group is the part of a batch that one handler takes together.
type group struct {
	handler Handler
	tasks   []Task
}

// suspect tells whether it is a task that was tried before.
func (g group) suspect() bool { return len(g.tasks) == 1 && g.tasks[0].Attempts > 1 }

// groups splits a batch by handler, and keeps what is in one lane in its order.
// Tasks that were tried before come last, each alone: should one of them be
// poisoned, by panics or by never ending, it harms only itself.
func (s *shift) groups(tasks []Task) (groups []group) {
	var again []group
	last := make(map[lane]int) // the group of the lane's latest task
	for _, t := range tasks {
		h := s.handlerOf(t)
		if t.Attempts > 1 {
			again = append(again, group{h, []Task{t}})
			continue
		}
		way, inLane := laneFor(t)
		at := last[way]
		for at < len(groups) && groups[at].handler != h {
			at++
		}
		if at == len(groups) {
			groups = append(groups, group{handler: h})
		}
		groups[at].tasks = append(groups[at].tasks, t)
		if inLane {
			last[way] = at
		}
	}
	return append(groups, again...)
}

func (s *shift) handlerOf(t Task) Handler {
	if h, ok := s.handlers[t.Type]; ok {
		return h
	}
	return unknownType{}
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

// apart makes a group of each task.
func (g group) apart() []group {
	groups := make([]group, len(g.tasks))
	for i, t := range g.tasks {
		groups[i] = group{g.handler, []Task{t}}
	}
	return groups
}

// answer is what came of a call of a handler.
type answer struct {
	errs     []error
	panicked bool
	deaf     bool // nothing: it did not end with its context
}

// call calls the handler, on a goroutine of its own: one that does not end with
// its context is left behind.
func (s *shift) call(ctx context.Context, g group) answer {
	answered := make(chan answer, 1)
	go func() { answered <- handle(ctx, g.handler, g.tasks) }()
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
	}
	// As long as the lease lasts, the results can still be recorded.
	patience := time.NewTimer(s.options.Lease / 2)
	defer patience.Stop()
	select {
	case a := <-answered:
		return a
	case <-patience.C:
	case <-s.over.Done():
	}
	s.leaveBehind(ctx, g)
	return answer{deaf: true}
}

// leaveBehind reports a handler that does not end.
func (s *shift) leaveBehind(ctx context.Context, g group) {
	ids := make([]uint64, 0, mostIDs)
	for _, t := range g.tasks[:min(len(g.tasks), mostIDs)] {
		ids = append(ids, t.ID)
	}
	s.log.ErrorContext(ctx, "a handler does not end and is left behind; its tasks are free when their leases ran out",
		"type", g.tasks[0].Type, "count", len(g.tasks), "tasks", ids, "cause", context.Cause(ctx))
}

// mostIDs bounds the line in the log.
const mostIDs = 20

// handle calls the handler and makes of a panic an error that names its place.
func handle(ctx context.Context, h Handler, batch []Task) (a answer) {
	defer func() {
		if value := recover(); value != nil {
			a = answer{errs: repeat(fmt.Errorf("panic: %v\n%s", value, debug.Stack()), len(batch)), panicked: true}
		}
	}()
	errs := h.Handle(ctx, batch)
	if len(errs) != len(batch) {
		errs = repeat(fmt.Errorf("the handler %T answered %d of %d tasks", h, len(errs), len(batch)), len(batch))
	}
	return answer{errs: errs}
}

func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
