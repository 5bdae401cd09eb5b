package oncehistory_test

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/once"
)

// vault is a store in memory that breaks the rule that a test breaks on purpose.
type vault struct {
	broken broken

	mu     sync.Mutex
	states map[string]once.State
	old    map[string]once.State // the states before the last change
	fence  once.Fence
}

// broken is a rule that a vault breaks. The zero broken breaks none.
type broken struct {
	step   step // instead of once.Step
	atomic bool // reading and writing are two steps
	fresh  bool // get may answer the state before the last change
	forget bool // it forgets a held state
}

func newVault(b broken) *vault {
	if b.step == nil {
		b.step = call.step
	}
	return &vault{broken: b, states: map[string]once.State{}, old: map[string]once.State{}}
}

func now() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }

// Apply implements [once.Store].
func (v *vault) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	if err := cmp.Or(op.Check(name), ctx.Err()); err != nil {
		return once.Reply{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	at := now()
	before := v.known(name, at)
	if v.broken.atomic {
		v.mu.Unlock()
		_ = retry.Sleep(ctx, time.Millisecond)
		v.mu.Lock()
	}
	s, outcome := v.broken.step(call{before, at, v.fence + 1, op})
	v.fence = max(v.fence, s.Fence)
	v.states[name], v.old[name] = s, before
	return once.Reply{Outcome: outcome, State: s, Now: at, Changed: s.Phase != before.Phase}, nil
}

func (v *vault) known(name string, at time.Time) once.State {
	if s := v.states[name]; at.Before(s.ForgetAt) {
		return s
	}
	return once.State{}
}

// Get implements [once.Store].
func (v *vault) Get(_ context.Context, name string) (once.Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken.fresh {
		return once.Reply{State: v.old[name], Now: now()}, nil
	}
	return once.Reply{State: v.known(name, now()), Now: now()}, nil
}

// Forget implements [once.Store].
func (v *vault) Forget(_ context.Context, name string, force bool) (forgotten bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.known(name, now())
	if s.Phase == once.Held && !s.Expired(now()) && !force && !v.broken.forget {
		return false, once.ErrHeld
	}
	delete(v.states, name)
	return s.Phase != "", nil
}

// List implements [once.Store].
func (v *vault) List(context.Context) ([]once.Named, error) { return nil, nil }

// age moves the times of a state back.
func (v *vault) age(_ context.Context, name string, d time.Duration) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.states[name]
	if s.Phase == "" {
		return nil
	}
	if s.Phase == once.Held {
		s.Until = s.Until.Add(-d)
	}
	s.ForgetAt = s.ForgetAt.Add(-d)
	v.states[name] = s
	return nil
}
