package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// batch is what a worker has claimed at once.
type batch struct {
	claimed time.Time // before the claim, by the clock of this process
	ticket  *ticket
	pause   time.Duration // if it has to wait for a server: one for all, they are written together

	mu   sync.Mutex
	held []Task // whose results are not about to be recorded
}

func newBatch(claimed time.Time, list []Task, l *lanes) *batch {
	return &batch{claimed: claimed, ticket: l.enter(list), pause: jitter(awayPause), held: list}
}

// holding returns the tasks whose leases are to be kept.
func (b *batch) holding() []Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// release ends the keeping of leases, before results are recorded.
func (b *batch) release(results []Result) {
	ids := make(map[uint64]bool, len(results))
	for _, r := range results {
		ids[r.Task.ID] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(slices.Clone(b.held), func(t Task) bool { return ids[t.ID] })
}

// errOutlasted is the cause of what is cancelled because it took too long.
var errOutlasted = errors.New("the work took longer than its limit")

// laneWait is how long a worker waits for lanes that others occupy. Then it lets
// the tasks go, for a while, so that one that hangs cannot hold up a worker for
// every other task of its subject. What comes later may overtake them; the guard
// sees to the rest.
const (
	laneWait  = 250 * time.Millisecond
	lanePause = 500 * time.Millisecond
)

var errLaneTaken = errors.New("an earlier task of the same subject is not through")

// run works on a batch and records its results: first what is free to run, then
// the rest as its lanes become free. It returns false when a server that the
// tasks need is away, so that the worker pauses.
func (s *shift) run(b *batch) (healthy bool) {
	ctx, lose := context.WithCancelCause(s.work)
	defer lose(nil)
	ctx, cancel := context.WithDeadlineCause(ctx, b.claimed.Add(s.options.Limit), fmt.Errorf("%w of %v", errOutlasted, s.options.Limit))
	var beating sync.WaitGroup
	beating.Go(func() { s.beat(ctx, b, lose) })
	defer beating.Wait()
	defer cancel()

	healthy = true
	for start := time.Now(); ; {
		part, err := b.nextPart(ctx)
		if err != nil || len(part) == 0 {
			pause := time.Duration(0)
			if errors.Is(err, errLaneTaken) && s.claiming.Err() == nil {
				pause = jitter(lanePause)
			}
			s.record(b, handBack(b.ticket.leave(), pause, err))
			return healthy
		}
		healthy = s.runPart(ctx, b, part, start) && healthy
	}
}

// nextPart waits for the next tasks whose lanes are free, but not for long.
func (b *batch) nextPart(ctx context.Context) ([]Task, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, laneWait, errLaneTaken)
	defer cancel()
	return b.ticket.next(ctx)
}

// ran is what became of a task.
type ran struct {
	Result
	took  time.Duration
	begun bool
}

// runPart runs tasks whose turn it is, of a batch that was taken at start, leaves
// their lanes, and records what became of them; of those that were left behind
// with a deaf handler, nothing. What is done is recorded before a suspect begins:
// that may be the end of the process.
func (s *shift) runPart(ctx context.Context, b *batch, part []Task, start time.Time) (healthy bool) {
	healthy = true
	var all []ran
	for _, g := range s.groups(part) {
		if g.suspect() && len(all) > 0 {
			healthy = s.settle(b, all) && healthy //nolint:contextcheck // results are recorded when the work is cancelled, too
			all = nil
		}
		if ctx.Err() == nil {
			for _, t := range g.tasks {
				countStarted(t, t.Waited+time.Since(start))
			}
		}
		all = append(all, s.runGroup(ctx, b, g)...)
	}
	b.ticket.done(part)
	return s.settle(b, all) && healthy //nolint:contextcheck // see above
}

// runGroup hands the group to its handler. When that panics, the tasks are run
// one by one, so that only the poisoned one pays. What would begin after the end
// of ctx is handed back.
func (s *shift) runGroup(ctx context.Context, b *batch, g group) (all []ran) {
	if ctx.Err() != nil {
		for _, r := range handBack(g.tasks, 0, context.Cause(ctx)) {
			all = append(all, ran{Result: r})
		}
		return all
	}
	start := time.Now()
	a := s.call(ctx, g)
	switch {
	case a.deaf:
		return nil
	case a.panicked && len(g.tasks) > 1:
		for _, one := range g.apart() {
			all = append(all, s.runGroup(ctx, b, one)...)
		}
		return all
	}
	took := time.Since(start)
	for i, t := range g.tasks {
		all = append(all, ran{Result{t, classify(ctx, a.errs[i], b.pause)}, took, true})
	}
	return all
}

// handBack makes results of tasks that were not begun: another may have them
// after a pause, and no attempt is counted.
func handBack(list []Task, pause time.Duration, cause error) []Result {
	results := make([]Result, len(list))
	for i, t := range list {
		results[i] = Result{Task: t, Err: Later(pause, fmt.Errorf("handed back before it began: %w", cause))}
	}
	return results
}
