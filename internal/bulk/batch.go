package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
)

// batch is members that entered together, and what was counted for them.
type batch struct {
	members []member.ID
	counts  Counts
	done    bool
}

// part is the members of a batch that are visited together.
type part struct {
	members []member.ID
	failed  int // visits of these members, or of more of them
	alone   int // visits of a single member that failed with [Own]
}

// maxTries is how often an [Own] error is borne of a single member, by default, or of
// anything else.
const maxTries = 10

// work visits the members of a batch, as often as it takes, and leaves the pacer.
// Members on which a visit failed come last, in halves.
func (w *walk) work(b *batch, leave func()) error {
	away := 0 // visits in a row that found a server away
	for parts := []part{{members: b.members}}; ; {
		p := parts[0]
		parts = parts[1:]
		left, err := w.visit(b, p.members)
		leave()
		fault := Own
		if err != nil {
			fault = w.judge(err)
		}
		switch {
		case err == nil:
		case w.starting.Err() != nil:
			return ErrStopped
		case fault == Fatal:
			return fmt.Errorf("members %s to %s: %w", p.members[0], p.members[len(p.members)-1], err)
		default:
			parts = append(parts, w.again(b, p, left, fault, err)...)
		}
		if len(parts) == 0 {
			return w.end(b)
		}
		tries := 0
		if fault == Away {
			away++
			tries = away
		} else if away = 0; parts[0].failed > p.failed { // all parts that failed as often are through
			tries = parts[0].failed
		}
		if tries > 0 && !pause(w.starting, tries) {
			return ErrStopped
		}
		if leave, err = w.Pacer.Enter(w.starting, len(parts[0].members)); err != nil {
			return ErrStopped
		}
	}
}

// again halves what is left of a part after an error, or gives a single member up.
func (w *walk) again(b *batch, p part, left []member.ID, fault Fault, err error) (parts []part) {
	if fault == Own && len(p.members) == 1 {
		p.alone++
		if p.alone == w.Tries {
			b.counts[Failed]++
			w.GaveUp(p.members[0], err)
			return nil
		}
	}
	w.Trouble(err)
	for half := range slices.Chunk(left, (len(left)+1)/2) {
		parts = append(parts, part{members: half, failed: p.failed + 1, alone: p.alone})
	}
	return parts
}

// visit visits once and counts the members that are done. With an error, at least one
// is left.
func (w *walk) visit(b *batch, members []member.ID) (left []member.ID, err error) {
	ctx, cancel := w.limit(w.visiting)
	defer cancel()
	done, left, err := w.Visit(ctx, members)
	if err != nil && len(left) == 0 {
		return members, w.explain(ctx, err)
	}
	b.counts.Add(done)
	return left, w.explain(ctx, err)
}

// errTooLong is the cause of what [Walk.Timeout] cancels.
var errTooLong = errors.New("it took too long")

func (w *walk) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, w.Timeout, errTooLong)
}

// explain says of an error that it is due to the timeout.
func (w *walk) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%w (more than %v): %w", errTooLong, w.Timeout, err)
	}
	return err
}

func (w *walk) judge(err error) Fault {
	if errors.Is(err, errTooLong) {
		return Own
	}
	return w.Judge(err)
}

// patiently repeats do until it succeeds, fails with a [Fatal] error, or failed ten
// times with an [Own] one. It returns [ErrStopped] when ctx ends.
func patiently(ctx context.Context, judge func(error) Fault, trouble func(error), do func(context.Context) error) error {
	own := 0
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ErrStopped
		}
		fault := judge(err)
		if fault == Own {
			own++
		}
		if fault == Fatal || own == maxTries {
			return err
		}
		trouble(err)
		if !pause(ctx, try) {
			return ErrStopped
		}
	}
}

// pause waits after the n-th failure in a row, and returns false when ctx ends.
func pause(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Backoff(n, 100*time.Millisecond, 5*time.Second)) == nil
}
