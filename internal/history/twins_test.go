package history_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/indextest"
)

// TestPlainIndexIsTheSpecification: without a mutation, plainIndex does the same as indextest.Memory.
func TestPlainIndexIsTheSpecification(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := func(_ context.Context, s index.Settings) (backend, error) {
			return over(twins{newPlainIndex(noRule, s), indextest.NewMemory(s)}), nil
		}
		if seed, err := (player{open: open, bubble: true}).search(t.Context(), 0, 200); !errors.Is(err, errUnnoticed) {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}

// twins asks both, and fails when they differ.
type twins struct{ one, other forgetful }

func both[T any](what string, ask func(forgetful) (T, error), t twins) (T, error) {
	a, errA := ask(t.one)
	b, errB := ask(t.other)
	if fmt.Sprint(a) != fmt.Sprint(b) || (errA == nil) != (errB == nil) {
		return a, violation("%s: one says %v, %v, the other %v, %v", what, a, errA, b, errB)
	}
	return a, errA
}

// same is both for a call without an error. A difference ends the history with a panic, which is a violation.
func same[T any](what string, ask func(forgetful) T, t twins) T {
	value, err := both(what, func(x forgetful) (T, error) { return ask(x), nil }, t)
	if err != nil {
		panic(err)
	}
	return value
}

func (t twins) Settings() index.Settings { return t.one.Settings() }

func (t twins) Candidates(ctx context.Context, user member.ID) ([]index.Entry, error) {
	return both("candidates", func(x forgetful) ([]index.Entry, error) { return x.Candidates(ctx, user) }, t)
}

func (t twins) Look(ctx context.Context, users []member.ID) []index.Set {
	return same("look", func(x forgetful) []index.Set { return x.Look(ctx, users) }, t)
}

func (t twins) Begin(ctx context.Context, users []member.ID) []index.Update {
	return same("begin", func(x forgetful) []index.Update { return x.Begin(ctx, users) }, t)
}

func (t twins) Apply(ctx context.Context, changes []index.Change) []index.Result {
	return same("apply", func(x forgetful) []index.Result { return x.Apply(ctx, changes) }, t)
}

func (t twins) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	missing = same("add", func(x forgetful) []member.ID {
		missing, failed = x.Add(ctx, additions)
		return missing
	}, t)
	return missing, failed
}

func (t twins) NodeOf(user member.ID) (node string, isUsable bool) { return t.one.NodeOf(user) }

func (t twins) Forget(user member.ID)      { t.one.Forget(user); t.other.Forget(user) }
func (t twins) ForgetGuard(user member.ID) { t.one.ForgetGuard(user); t.other.ForgetGuard(user) }
func (t twins) ForgetAll()                 { t.one.ForgetAll(); t.other.ForgetAll() }
