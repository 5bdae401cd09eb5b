// Package oncetest has a store of locks in memory, which is the model of all stores, and the tests that every
// store passes.
package oncetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/once"
)

// Memory is a [once.Store] in memory: [once.Step] under a mutex.
type Memory struct {
	now func() time.Time

	mu     sync.Mutex
	states map[string]once.State
	fence  once.Fence // the highest that was given
}

// NewMemory returns an empty store whose clock is now.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, states: make(map[string]once.State)}
}

// Apply implements [once.Store].
func (m *Memory) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	if err := cmp.Or(op.Check(name), ctx.Err()); err != nil {
		return once.Reply{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	before := m.known(name, now)
	s, outcome := once.Step(before, now, m.fence+1, op)
	m.fence = max(m.fence, s.Fence)
	m.states[name] = s
	return once.Reply{Outcome: outcome, State: s, Now: now, Changed: s.Phase != before.Phase}, nil
}

func (m *Memory) clock() time.Time { return m.now().Truncate(time.Millisecond) }

// known returns a state that is not forgotten.
func (m *Memory) known(name string, now time.Time) once.State {
	s := m.states[name]
	if !now.Before(s.ForgetAt) {
		return once.State{}
	}
	return s
}

// Get implements [once.Store].
func (m *Memory) Get(ctx context.Context, name string) (once.Reply, error) {
	if err := cmp.Or(once.CheckName(name), ctx.Err()); err != nil {
		return once.Reply{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	return once.Reply{State: m.known(name, now), Now: now}, nil
}

// List implements [once.Store].
func (m *Memory) List(ctx context.Context) (list []once.Named, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	for _, name := range slices.Sorted(maps.Keys(m.states)) {
		if s := m.known(name, now); s.Phase != "" {
			list = append(list, once.Named{Name: name, Reply: once.Reply{State: s, Now: now}})
		}
	}
	return list, nil
}

// Forget implements [once.Store].
func (m *Memory) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	if err := cmp.Or(once.CheckName(name), ctx.Err()); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	s := m.known(name, now)
	if s.Phase == once.Held && !s.Expired(now) && !force {
		return false, once.ErrHeld
	}
	delete(m.states, name)
	return s.Phase != "", nil
}

// Age moves the times of a state back by d, as if it were so much older.
func (m *Memory) Age(name string, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[name]
	if !s.Until.IsZero() {
		s.Until = s.Until.Add(-d)
	}
	s.Began, s.ForgetAt = s.Began.Add(-d), s.ForgetAt.Add(-d)
	m.states[name] = s
	return nil
}
