package endtoend_test

import (
	"context"
	"slices"
	"sync"
	"time"
)

// timeline records the values of a variable over time. A test changes the variable, and each change takes
// effect at some instant between its begin and its end.
type timeline[T any] struct {
	mu    sync.Mutex
	spans []span[T]
}

// span is from when, and until when, a value may have held.
type span[T any] struct {
	value    T
	from, to time.Time // to is zero while no later value does
}

func newTimeline[T any](value T) *timeline[T] {
	return &timeline[T]{spans: []span[T]{{value: value}}}
}

// set makes a change, as often as it takes. To make it twice must be the same as once.
func (l *timeline[T]) set(ctx context.Context, value T, change func() error) error {
	last := l.add(value)
	err := retry(ctx, always, change)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spans[last-1].to = time.Now()
	}
	return err
}

func (l *timeline[T]) add(value T) (at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, span[T]{value: value, from: time.Now()})
	return len(l.spans) - 1
}

// latest returns the value that was set last.
func (l *timeline[T]) latest() T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spans[len(l.spans)-1].value
}

// could reports whether, at some instant of a time, a value may have held that fulfils a
// condition.
func (l *timeline[T]) could(be func(T) bool, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.spans, func(s span[T]) bool {
		return be(s.value) && !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
	})
}

func isTrue(b bool) bool { return b }

func isFalse(b bool) bool { return !b }
