package oncehistory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/once"
)

// enough is the number of histories in which each broken rule is noticed. "make test" plays a
// quarter as many without a broken rule in memory, and on each server: with new seeds each time.
const enough = 300

type step func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome)

// TestEachRuleIsNeeded breaks a single rule of the state machine or of a store at a time, in
// memory, and expects the histories to notice. So the proof can fail.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		rule string
		broken
	}{
		{"the owner's token is checked", broken{step: func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if op.Action != once.Acquire && s.Phase == once.Held {
				op.Owner = s.Owner
			}
			return once.Step(s, now, fence, op)
		}}},
		{"the token of an extension is checked", broken{step: when(once.Extend, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			op.Owner = s.Owner
			return once.Step(s, now, fence, op)
		})}},
		{"an expired lease is not extended", broken{step: when(once.Extend, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Owner == op.Owner && s.Expired(now) {
				now = s.Until.Add(-1)
			}
			return once.Step(s, now, fence, op)
		})}},
		{"a lease that has not expired is not taken over", broken{step: when(once.Acquire, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Phase == once.Held && s.Until.Sub(now) < 10*time.Millisecond {
				s.Until = now
			}
			return once.Step(s, now, fence, op)
		})}},
		{"an expired lease is taken over", broken{step: when(once.Acquire, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Expired(now) {
				return s, once.Busy
			}
			return once.Step(s, now, fence, op)
		})}},
		{"the lease and the state are set together", broken{step: func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			s2, outcome := once.Step(s, now, fence, op)
			if s2.Phase == once.Held && now.UnixMilli()%16 == 0 { // a crash in between
				s2.Until, s2.ForgetAt = now.Add(once.MaxLease), now.Add(once.MaxLease)
			}
			return s2, outcome
		}}},
		{"an attempt that died counts", broken{step: when(once.Acquire, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Expired(now) {
				s.Attempt--
			}
			return once.Step(s, now, fence, op)
		})}},
		{"an attempt that was handed back does not count", broken{step: when(once.Release, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Owner == op.Owner && s.Phase == once.Held {
				s.Attempt++
			}
			return once.Step(s, now, fence, op)
		})}},
		{"an acquisition may be repeated", broken{step: when(once.Acquire, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Phase == once.Held && s.Owner == op.Owner {
				s.Until = now
			}
			return once.Step(s, now, fence, op)
		})}},
		{"a release may be repeated", broken{step: when(once.Release, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Phase == once.Free && s.Owner == op.Owner && now.Before(s.ForgetAt) {
				s.Attempt--
				return s, once.OK
			}
			return once.Step(s, now, fence, op)
		})}},
		{"an owner has one attempt", broken{step: when(once.Acquire, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			after, outcome := once.Step(s, now, fence, op)
			if outcome == once.Lost {
				s.Owner, s.Ended = "", ""
				return once.Step(s, now, fence, op)
			}
			return after, outcome
		})}},
		{"a failure is answered as the first time", broken{step: when(once.Fail, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			after, outcome := once.Step(s, now, fence, op)
			if outcome == once.OK && s.Owner != op.Owner {
				outcome = once.Lost
			}
			return after, outcome
		})}},
		{"attempts end", broken{step: when(once.Fail, func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			attempts := s.Terms.Attempts
			s.Terms.Attempts = 0
			s, outcome := once.Step(s, now, fence, op)
			s.Terms.Attempts = attempts
			return s, outcome
		})}},
		{"done is a phase and no number", broken{step: func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Phase == once.Done { // as strtol has it
				s = once.State{Fence: s.Fence}
			}
			return once.Step(s, now, fence, op)
		}}},
		{"a state is forgotten", broken{step: func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			s, outcome := once.Step(s, now, fence, op)
			if s.Phase == once.Done || s.Phase == once.Exhausted {
				s.ForgetAt = now.Add(once.MaxKeep)
			}
			return s, outcome
		}}},
		{"each attempt has a fence of its own", broken{step: func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
			if s.Expired(now) {
				fence = s.Fence
			}
			return once.Step(s, now, fence, op)
		}}},
		{"an operation is atomic", broken{atomic: true}},
		{"a get is fresh", broken{fresh: true}},
		{"what is held is not forgotten", broken{forget: true}},
	} {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(enough) {
					if err := inMemory(m.broken).prove(t, seed); errors.Is(err, errRefuted) {
						t.Logf("history %d", seed)
						return
					} else if err != nil {
						t.Fatal(err)
					}
				}
				t.Fatalf("no history of %d noticed", enough)
			})
		})
	}
}

// when returns a step that differs from once.Step for a single action.
func when(a once.Action, other step) step {
	return func(s once.State, now time.Time, fence once.Fence, op once.Operation) (once.State, once.Outcome) {
		if op.Action == a {
			return other(s, now, fence, op)
		}
		return once.Step(s, now, fence, op)
	}
}
