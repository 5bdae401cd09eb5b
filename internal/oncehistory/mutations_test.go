package oncehistory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/once"
)

// enough is the number of histories in which each broken rule is noticed. "make test" plays a
// quarter as many without a broken rule in memory, and on each server: with new seeds each time.
const enough = 300

// call is a call of once.Step.
type call struct {
	s     once.State
	now   time.Time
	fence once.Fence
	op    once.Operation
}

func (c call) step() (once.State, once.Outcome) { return once.Step(c.s, c.now, c.fence, c.op) }

type step func(c call) (once.State, once.Outcome)

// instead differs from once.Step for a single action; "": for all.
func instead(a once.Action, other step) broken {
	return broken{step: func(c call) (once.State, once.Outcome) {
		if a == "" || c.op.Action == a {
			return other(c)
		}
		return c.step()
	}}
}

// before changes what once.Step is given for a single action; "": for all.
func before(a once.Action, change func(c *call)) broken {
	return instead(a, func(c call) (once.State, once.Outcome) {
		change(&c)
		return c.step()
	})
}

// TestEachRuleIsNeeded breaks a single rule of the state machine or of a store at a time, in
// memory, and expects the histories to notice. So the proof can fail.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		rule string
		broken
	}{
		{"the owner's token is checked", before("", func(c *call) {
			if c.op.Action != once.Acquire && c.s.Phase == once.Held {
				c.op.Owner = c.s.Owner
			}
		})},
		{"the token of an extension is checked", before(once.Extend, func(c *call) { c.op.Owner = c.s.Owner })},
		{"an expired lease is not extended", before(once.Extend, func(c *call) {
			if c.s.Owner == c.op.Owner && c.s.Expired(c.now) {
				c.now = c.s.Until.Add(-1)
			}
		})},
		{"a lease that has not expired is not taken over", before(once.Acquire, func(c *call) {
			if c.s.Phase == once.Held && c.s.Until.Sub(c.now) < 10*time.Millisecond {
				c.s.Until = c.now
			}
		})},
		{"an expired lease is taken over", instead(once.Acquire, func(c call) (once.State, once.Outcome) {
			if c.s.Expired(c.now) {
				return c.s, once.Busy
			}
			return c.step()
		})},
		{"the lease and the state are set together", instead("", func(c call) (once.State, once.Outcome) {
			s, outcome := c.step()
			if s.Phase == once.Held && c.now.UnixMilli()%16 == 0 { // a crash in between
				s.Until, s.ForgetAt = c.now.Add(once.MaxLease), c.now.Add(once.MaxLease)
			}
			return s, outcome
		})},
		{"an attempt that died counts", before(once.Acquire, func(c *call) {
			if c.s.Expired(c.now) {
				c.s.Attempt--
			}
		})},
		{"an attempt that was handed back does not count", before(once.Release, func(c *call) {
			if c.s.Owner == c.op.Owner && c.s.Phase == once.Held {
				c.s.Attempt++
			}
		})},
		{"an acquisition may be repeated", before(once.Acquire, func(c *call) {
			if c.s.Phase == once.Held && c.s.Owner == c.op.Owner {
				c.s.Until = c.now
			}
		})},
		{"a release may be repeated", instead(once.Release, func(c call) (once.State, once.Outcome) {
			if c.s.Phase == once.Free && c.s.Owner == c.op.Owner && c.now.Before(c.s.ForgetAt) {
				c.s.Attempt--
				return c.s, once.OK
			}
			return c.step()
		})},
		{"an owner has one attempt", instead(once.Acquire, func(c call) (once.State, once.Outcome) {
			if after, outcome := c.step(); outcome != once.Lost {
				return after, outcome
			}
			c.s.Owner, c.s.Ended = "", ""
			return c.step()
		})},
		{"a failure is answered as the first time", instead(once.Fail, func(c call) (once.State, once.Outcome) {
			after, outcome := c.step()
			if outcome == once.OK && c.s.Owner != c.op.Owner {
				outcome = once.Lost
			}
			return after, outcome
		})},
		{"attempts end", instead(once.Fail, func(c call) (once.State, once.Outcome) {
			attempts := c.s.Terms.Attempts
			c.s.Terms.Attempts = 0
			s, outcome := c.step()
			s.Terms.Attempts = attempts
			return s, outcome
		})},
		{"done is a phase and no number", before("", func(c *call) {
			if c.s.Phase == once.Done { // as strtol has it
				c.s = once.State{Fence: c.s.Fence}
			}
		})},
		{"a state is forgotten", instead("", func(c call) (once.State, once.Outcome) {
			s, outcome := c.step()
			if s.Phase == once.Done || s.Phase == once.Exhausted {
				s.ForgetAt = c.now.Add(once.MaxKeep)
			}
			return s, outcome
		})},
		{"each attempt has a fence of its own", before("", func(c *call) {
			if c.s.Expired(c.now) {
				c.fence = c.s.Fence
			}
		})},
		{"an operation is atomic", broken{atomic: true}},
		{"a get is fresh", broken{fresh: true}},
		{"what is held is not forgotten", broken{forget: true}},
	} {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(enough) {
					s := inMemory(m.broken)
					histories, err := s.play(t.Context(), seed)
					if err != nil {
						t.Fatal(err)
					}
					if err := s.judge(histories[0]); err != nil {
						t.Logf("history %d", seed)
						return
					}
				}
				t.Fatalf("no history of %d noticed", enough)
			})
		})
	}
}
