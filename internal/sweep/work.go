package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// errTooLong is the cause of what is cancelled by [Options.Limit].
var errTooLong = errors.New("it took too long")

// mostTries is how often a member is visited alone, before he is given up.
const mostTries = 10

// mostFailed is how many members are given up before it is not they who are to
// blame.
const mostFailed = 1000

// errTooMany: whatever is wrong concerns everybody.
var errTooMany = errors.New("too many members were given up")

// part is members of a batch who are visited together.
type part struct {
	users  []member.ID
	failed int // visits, of these users or of more of them
	alone  int // visits of a single one that failed for a reason of his own
}

// work visits the members of a batch, as often as it takes, and leaves the gate.
// What is left after an error comes last, in halves.
func (r *run) work(b *batch, leave func()) error {
	parts, away := []part{{users: b.users}}, 0
	for {
		p := parts[0]
		parts = parts[1:]
		left, err := r.visit(b, p.users)
		leave()
		switch {
		case err == nil:
			away = 0
		case r.starting.Err() != nil:
			return ErrStopped
		case r.judge(err) == Fatal:
			return fmt.Errorf("members %s to %s: %w", p.users[0], p.users[len(p.users)-1], err)
		case r.judge(err) == Away:
			away++
			parts = append(parts, r.again(p, left, err)...)
		default:
			away = 0
			parts = append(parts, r.retry(b, p, left, err)...)
		}
		if len(parts) == 0 {
			return nil
		}
		if leave, err = r.enter(away, p, parts[0]); err != nil {
			return ErrStopped
		}
	}
}

// enter lets the next part enter: at once, unless a server was away at the last
// visits, or all parts that failed as often as the last one are through.
func (r *run) enter(away int, last, next part) (leave func(), err error) {
	if away == 0 && next.failed > last.failed {
		away = next.failed
	}
	if away > 0 && !r.pause(away) {
		return nil, ErrStopped
	}
	return r.options.Gate.Enter(r.starting)
}

// again halves what is left of a part after an error.
func (r *run) again(p part, left []member.ID, err error) (parts []part) {
	r.options.Trouble(err)
	for half := range slices.Chunk(left, (len(left)+1)/2) {
		parts = append(parts, part{users: half, failed: p.failed + 1, alone: p.alone})
	}
	return parts
}

// retry does so after an error of the members' own, and gives up who had it often
// enough.
func (r *run) retry(b *batch, p part, left []member.ID, err error) []part {
	if len(p.users) == 1 {
		p.alone++
	}
	if p.alone < mostTries {
		return r.again(p, left, err)
	}
	b.counts.Add(Counts{Failed: 1})
	r.options.GaveUp(left[0], err)
	return nil
}

// visit visits once, and counts who is done. With an error there is somebody left.
func (r *run) visit(b *batch, users []member.ID) (left []member.ID, err error) {
	ctx, cancel := context.WithTimeoutCause(r.visiting, r.options.Limit, errTooLong)
	defer cancel()
	done, left, err := r.options.Visit(ctx, users)
	if err != nil && len(left) == 0 {
		return users, r.explain(ctx, err)
	}
	b.counts.Add(done)
	return left, r.explain(ctx, err)
}

// readOnce lists the members that follow.
func (r *run) readOnce(after member.ID) ([]member.ID, error) {
	ctx, cancel := context.WithTimeoutCause(r.starting, r.options.Limit, errTooLong)
	defer cancel()
	users, err := r.options.Source.Members(ctx, after, r.options.Batch)
	return users, r.explain(ctx, err)
}

// explain says of an error that it is due to the limit.
func (r *run) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%w (more than %v): %w", errTooLong, r.options.Limit, err)
	}
	return err
}

func (r *run) judge(err error) Fault {
	if errors.Is(err, errTooLong) {
		return Own
	}
	return r.options.Judge(err)
}

// The pauses after errors double from the first to the longest.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// pause waits after the n-th failure in a row, and returns false when nothing may
// start any more.
func (r *run) pause(n int) bool {
	d := min(firstPause<<min(n-1, 10), mostPause)
	timer := time.NewTimer(d/2 + rand.N(d/2)) // those who failed together do not come back together
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.starting.Done():
		return false
	}
}
