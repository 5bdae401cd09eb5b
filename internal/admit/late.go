package admit

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// beat is how often a [Lateness] looks at the clock.
	beat = 20 * time.Millisecond
	// lateKept is for how long is remembered that the process was late.
	lateKept = 10 * time.Second
)

// Lateness knows by how much this process is late: because its machine has other things to do, its
// cgroup has no processor time left, it was stopped, or too much of its own waits to run. The zero
// value, which does not run, is never late. It is safe for concurrent use.
type Lateness struct {
	mu   sync.Mutex
	last time.Time     // when Run last looked; zero: it does not run
	by   time.Duration // by how much that was late
	sum  time.Duration // by how much all looks were late
	was  []lateAt      // of lateKept, the latest last
}

type lateAt struct {
	at     time.Time     // when it was found
	before time.Duration // the sum until then
}

// Run measures until ctx ends; it returns nil.
func (l *Lateness) Run(ctx context.Context) error {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	defer l.note(time.Time{})
	for ctx.Err() == nil {
		// A goroutine that a timer wakes runs before all others, as those do not that wait for the
		// reply of a server. After this it has waited like them.
		runtime.Gosched()
		l.note(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// note takes note of a look at the clock.
func (l *Lateness) note(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.overdue(now)
	l.last, l.by = now, by
	if by > 0 {
		l.was = append(l.was, lateAt{now, l.sum})
		l.sum += by
		late.Add(by.Seconds())
	}
	for len(l.was) > 0 && now.Sub(l.was[0].at) > lateKept {
		l.was = l.was[1:]
	}
}

// overdue returns by how much the next look is late.
func (l *Lateness) overdue(now time.Time) time.Duration {
	if l.last.IsZero() || now.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.last)-beat)
}

// Now returns by how much the process is late, or was the last time that it looked.
func (l *Lateness) Now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.by, l.overdue(time.Now()))
}

// Since returns for how long of the time since then the process was late, also if it is now. It
// remembers ten seconds.
func (l *Lateness) Since(then time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	sum := l.overdue(now)
	if i := slices.IndexFunc(l.was, func(was lateAt) bool { return was.at.After(then) }); i >= 0 {
		sum += l.sum - l.was[i].before
	}
	return min(sum, max(0, now.Sub(then))) // it may have begun before
}
