package endtoend_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/push"
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
	l.mu.Lock()
	l.spans = append(l.spans, span[T]{value: value, from: time.Now()})
	last := len(l.spans) - 1
	l.mu.Unlock()
	err := retry(ctx, always, change)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spans[last-1].to = time.Now()
	}
	return err
}

// turn notes that it took another value by itself.
func (l *timeline[T]) turn(value T, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans[len(l.spans)-1].to = at
	l.spans = append(l.spans, span[T]{value: value, from: at})
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

// windows record the times of faults.
type windows struct {
	mu  sync.Mutex
	all []window
}

// window is the time of a fault, and the messages that it may concern: a zero field stands for all.
type window struct {
	what     string
	from, to time.Time
	of       *run // that sends them
	platform push.Platform
	key      string // of the device
}

func (w *windows) add(one window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
}

// during notes how long something takes.
func (w *windows) during(one window, do func() error) error {
	one.from = time.Now()
	err := do()
	one.to = time.Now()
	w.add(one)
	return err
}
