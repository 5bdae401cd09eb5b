package demo

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/site"
)

// Run makes traffic until the context ends, and then returns nil. A change that
// fails is logged and left: the next one comes anyway.
func (d *Demo) Run(ctx context.Context) error {
	t := &traffic{Demo: d, dice: rand.New(rand.NewPCG(d.cfg.Seed, 0))}
	for retry.Sleep(ctx, t.pause()) == nil {
		if d.paused.Load() {
			continue
		}
		if err := t.change(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Log.WarnContext(ctx, "demo traffic: a change failed", slog.Any("error", err))
		}
	}
	return nil
}

// traffic draws one change after the other. It belongs to one goroutine.
type traffic struct {
	*Demo
	dice   *rand.Rand
	blocks []world.Block // made by the traffic and still standing
}

// pause draws the time to the next change: unevenly, as life is, at the rate
// that was asked for on average.
func (t *traffic) pause() time.Duration {
	return time.Duration((0.4 + 1.2*t.dice.Float64()) / t.cfg.Rate * float64(time.Second))
}

func (t *traffic) change(ctx context.Context) error {
	switch n := t.dice.IntN(100); {
	case n < 46:
		return t.someUpload(ctx)
	case n < 61:
		return t.someAdd(ctx)
	case n < 75:
		return t.someRemove(ctx)
	case n < 93:
		return t.someFlip(ctx)
	default:
		return t.someBlock(ctx)
	}
}

// star is the viewer around whom something is to happen: one who is looked at
// now, otherwise one of the featured.
func (t *traffic) star() member.ID {
	from := t.watchers.current()
	if len(from) == 0 {
		from = t.cfg.World.Featured
	}
	if len(from) == 0 {
		return t.roster.anyone(t.dice)
	}
	return from[t.dice.IntN(len(from))]
}

// someUpload favours contacts of the viewers that are looked at, so that the
// page does not stand still, and lets the rest follow a heavy tail. The famous
// are rare: each of their uploads concerns thousands of sets.
func (t *traffic) someUpload(ctx context.Context) error {
	var owner member.ID
	switch n := t.dice.IntN(100); {
	case n < 45:
		owner = t.roster.busyContactOf(t.dice, t.star())
	case n < 92:
		owner = t.roster.busy(t.dice)
	default:
		owner = t.roster.famous(t.dice)
	}
	if owner == 0 {
		owner = t.roster.anyone(t.dice)
	}
	return t.upload(ctx, owner, world.Visibility(t.dice), false)
}

func (t *traffic) someAdd(ctx context.Context) error {
	user, contact := t.star(), t.roster.busy(t.dice)
	// A viewer without any contact is on show as just that.
	if t.dice.IntN(3) > 0 || t.roster.count(user) == 0 {
		user = t.roster.anyone(t.dice)
	}
	if contact == 0 || user == contact || t.roster.has(user, contact) {
		return nil
	}
	return t.addContact(ctx, user, contact, site.Grant{Friend: t.dice.IntN(5) == 0, Family: t.dice.IntN(15) == 0})
}

func (t *traffic) someRemove(ctx context.Context) error {
	user := t.star()
	// Short lists are left alone, or they would be empty before long.
	if t.dice.IntN(3) > 0 || t.roster.count(user) < 20 {
		user = t.roster.anyone(t.dice)
	}
	contact := t.roster.contactOf(t.dice, user, 0)
	if contact == 0 {
		return nil
	}
	return t.removeContact(ctx, user, contact)
}

func (t *traffic) someFlip(ctx context.Context) error {
	p, ok := t.uploads.any(t.dice)
	if !ok {
		return nil
	}
	v := contacts.Private
	if p.visibility == contacts.Private {
		v = contacts.Public
	}
	return t.setVisibility(ctx, p, v, false)
}

// someBlock blocks a follower, and before long unblocks them again.
func (t *traffic) someBlock(ctx context.Context) error {
	const most = 4
	if len(t.blocks) >= most {
		oldest := t.blocks[0]
		t.blocks = t.blocks[1:]
		return t.unblock(ctx, oldest)
	}
	blocked := t.star()
	user := t.roster.contactOf(t.dice, blocked, 0)
	if user == 0 {
		return nil
	}
	b := world.Block{User: user, Blocked: blocked}
	if err := t.block(ctx, b); err != nil {
		return err
	}
	t.blocks = append(t.blocks, b)
	return nil
}
