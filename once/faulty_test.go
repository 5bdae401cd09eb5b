package once_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/activityd/activityd/once"
)

// fault is the fault that meets an operation.
type fault struct {
	before time.Duration // until it reaches the store
	slow   time.Duration // until the store has applied it, even if the client has gone by then
	refuse bool          // it does not reach it
	lose   bool          // the answer is lost
	after  time.Duration // until the answer comes back
	late   time.Duration // it is applied so late that the client has gone, and is told so at once
	again  time.Duration // it is applied once more, so long after
}

// forever is longer than any test.
const forever = 1000 * time.Hour

// faulty is a store with a network between it and its client.
type faulty struct {
	once.Store

	// fault decides the fault of the nth operation of its action; nil: none.
	fault func(n int, op once.Operation) fault

	mu   sync.Mutex
	n    map[once.Action]int
	late sync.WaitGroup
}

func (f *faulty) next(op once.Operation) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = make(map[once.Action]int)
	}
	f.n[op.Action]++
	if f.fault == nil {
		return fault{}
	}
	return f.fault(f.n[op.Action], op)
}

// sent is how many operations of an action there were.
func (f *faulty) sent(a once.Action) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n[a]
}

// total is how many operations there were.
func (f *faulty) total() (total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.n {
		total += n
	}
	return total
}

func (f *faulty) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	to := f.next(op)
	if err := travel(ctx, to.before); err != nil {
		return once.Reply{}, err
	}
	if to.refuse {
		return once.Reply{}, fmt.Errorf("%w: connection refused", once.ErrUnavailable)
	}
	if to.late > 0 {
		f.late.Go(func() {
			pass(to.late)
			_, _ = f.Store.Apply(context.WithoutCancel(ctx), name, op)
		})
		return once.Reply{}, fmt.Errorf("%w: connection reset", once.ErrUnavailable)
	}
	if to.again > 0 {
		f.late.Go(func() {
			pass(to.again)
			_, _ = f.Store.Apply(context.WithoutCancel(ctx), name, op)
		})
	}
	if to.slow > 0 {
		return f.applySlowly(ctx, name, op, to.slow)
	}
	r, err := f.Store.Apply(ctx, name, op)
	if err != nil {
		return r, err
	}
	if err := travel(ctx, to.after); err != nil {
		return once.Reply{}, err
	}
	if to.lose {
		return once.Reply{}, fmt.Errorf("%w: connection reset", once.ErrUnavailable)
	}
	return r, nil
}

func (f *faulty) applySlowly(ctx context.Context, name string, op once.Operation, d time.Duration) (once.Reply, error) {
	type answer struct {
		once.Reply
		error
	}
	answered := make(chan answer, 1)
	f.late.Go(func() {
		pass(d)
		r, err := f.Store.Apply(context.WithoutCancel(ctx), name, op)
		answered <- answer{r, err}
	})
	select {
	case a := <-answered:
		return a.Reply, a.error
	case <-ctx.Done():
		return once.Reply{}, ctx.Err()
	}
}

// travel is how long a message takes.
func travel(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass lets time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble, which costs none
