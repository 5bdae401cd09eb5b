package oncetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/once"
)

// ksec is the unit of the leases and the keeps that are drawn. States age by halves of
// it, so that the milliseconds that pass during the test make no difference.
const ksec = 1000 * time.Second

// testProperty applies random operations to the store and to a [Memory], and compares their replies.
func testProperty(t *testing.T, s suite) {
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		p := &pair{
			ctx: t.Context(), store: s.Harness, memory: NewMemory(time.Now),
			names:  []string{fmt.Sprintf("%s%d/a", s.prefix, run), fmt.Sprintf("%s%d/b", s.prefix, run)},
			fences: make(map[once.Fence]once.Fence), highest: make(map[string]once.Fence),
		}
		for range rapid.IntRange(1, 40).Draw(rt, "operations") {
			p.step(rt)
		}
		for _, name := range p.names {
			p.get(rt, name)
			if _, err := s.Forget(t.Context(), name, true); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// pair is a store and the model.
type pair struct {
	ctx    context.Context
	store  Harness
	memory *Memory
	names  []string

	fences  map[once.Fence]once.Fence // fences of the store, by fence of the model
	highest map[string]once.Fence     // of the store, by name
}

var (
	aName   = rapid.IntRange(0, 1)
	owners  = rapid.SampledFrom([]string{"a", "b", "c"})
	actions = rapid.SampledFrom([]once.Action{once.Acquire, once.Acquire, once.Acquire, once.Extend, once.Finish, once.Fail, once.Fail, once.Release})
	ksecs   = rapid.Map(rapid.IntRange(1, 4), func(n int) time.Duration { return time.Duration(n) * ksec })
	reasons = rapid.SampledFrom([]string{"", "no luck", "ä\xff\x00"})
)

// step applies a random operation to both.
func (p *pair) step(t *rapid.T) {
	name := p.names[aName.Draw(t, "name")]
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	default:
		p.apply(t, name, once.Operation{
			Action: actions.Draw(t, "action"), Owner: owners.Draw(t, "owner"), Reason: reasons.Draw(t, "reason"),
			Terms: once.Terms{Lease: ksecs.Draw(t, "lease"), Keep: ksecs.Draw(t, "keep"), Attempts: rapid.IntRange(0, 3).Draw(t, "attempts")},
		})
	case 0, 1:
		p.age(t, name, ksecs.Draw(t, "age")-ksec/2)
	case 2:
		p.get(t, name)
	case 3:
		force := rapid.Bool().Draw(t, "force")
		want, wantErr := p.memory.Forget(p.ctx, name, force)
		got, err := p.store.Forget(p.ctx, name, force)
		if got != want || errors.Is(err, once.ErrHeld) != errors.Is(wantErr, once.ErrHeld) || (err == nil) != (wantErr == nil) {
			t.Fatalf("forget: %v, %v, want %v, %v", got, err, want, wantErr)
		}
	}
}

func (p *pair) age(t *rapid.T, name string, d time.Duration) {
	if err := errors.Join(p.memory.Age(name, d), p.store.Age(name, d)); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) apply(t *rapid.T, name string, op once.Operation) {
	want, err := p.memory.Apply(p.ctx, name, op)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.store.Apply(p.ctx, name, op)
	if err != nil {
		t.Fatal(err)
	}
	p.compare(t, name, got, want)
}

func (p *pair) get(t *rapid.T, name string) {
	want, err := p.memory.Get(p.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.store.Get(p.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	p.compare(t, name, got, want)
}

// compare fails unless the store's reply is the model's, but for the clock and for the
// numbers that are the fences.
func (p *pair) compare(t *rapid.T, name string, got, want once.Reply) {
	if want.State.Fence != 0 {
		fence, known := p.fences[want.State.Fence]
		if !known {
			fence = got.State.Fence
			if fence <= p.highest[name] {
				t.Fatalf("fence %v after %v", fence, p.highest[name])
			}
			p.fences[want.State.Fence], p.highest[name] = fence, fence
		}
		want.State.Fence = fence
	}
	if g, w := relative(got), relative(want); g != w {
		t.Fatalf("the store answers\n%+v, want\n%+v", g, w)
	}
}

// relativeReply is a reply with its times relative to its clock, in halves of a [ksec].
type relativeReply struct {
	once.Reply

	began, until, forgetAt time.Duration
}

func relative(r once.Reply) relativeReply {
	rel := relativeReply{Reply: r}
	if !r.State.Began.IsZero() {
		rel.began = r.State.Began.Sub(r.Now).Round(ksec / 2)
	}
	if !r.State.Until.IsZero() {
		rel.until = r.State.Until.Sub(r.Now).Round(ksec / 2)
	}
	if !r.State.ForgetAt.IsZero() {
		rel.forgetAt = r.State.ForgetAt.Sub(r.Now).Round(ksec / 2)
	}
	rel.Now, rel.State.Began, rel.State.Until, rel.State.ForgetAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return rel
}
