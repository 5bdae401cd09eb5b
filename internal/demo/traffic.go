package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/site"
)

// Traffic makes changes on the site until the context ends, and then returns nil. A change that
// fails is logged and not repeated.
func (d *Demo) Traffic(ctx context.Context) error {
	t := &traffic{Demo: d, dice: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	for retry.Sleep(ctx, t.pause()) == nil {
		if d.off.Load() {
			continue
		}
		if err := t.change(ctx); err != nil && ctx.Err() == nil && !d.off.Load() {
			d.cfg.Log.WarnContext(ctx, "change failed", "error", err)
		}
	}
	return nil
}

// traffic draws changes and makes them. It belongs to a single goroutine.
type traffic struct {
	*Demo
	dice   *rand.Rand
	blocks []world.Block // made by the traffic and not taken back, oldest first
}

// pause draws the time to the next change, for the rate on average.
func (t *traffic) pause() time.Duration {
	return time.Duration((0.4 + 1.2*t.dice.Float64()) / t.cfg.Rate * float64(time.Second))
}

// change makes a change, or none where the dice found nothing to change.
func (t *traffic) change(ctx context.Context) error {
	switch n := t.dice.IntN(100); {
	case n < 46:
		return t.uploadAny(ctx)
	case n < 61:
		return t.addContact(ctx)
	case n < 75:
		return t.removeContact(ctx)
	case n < 93:
		return t.flipVisibility(ctx)
	default:
		return t.block(ctx)
	}
}

// uploadAny prefers contacts of the watched viewer, so that the page changes often.
func (t *traffic) uploadAny(ctx context.Context) error {
	var owner member.ID
	if t.dice.IntN(100) < 45 {
		owner = t.town.contactOf(t.dice, t.town.star(t.dice), 0)
	}
	if owner == 0 || t.cfg.World.IsQuiet(owner) {
		owner = t.town.uploader(t.dice)
	}
	u, err := t.upload(ctx, owner, world.Visibility(t.dice), false)
	if err == nil {
		t.town.addUpload(u)
	}
	return err
}

func (t *traffic) addContact(ctx context.Context) error {
	m, contact := t.town.star(t.dice), t.town.uploader(t.dice)
	// Viewers are featured for having no contacts, or quiet contacts alone.
	if t.dice.IntN(3) > 0 || t.town.contactCount(m) == 0 || t.cfg.World.IsQuiet(m) {
		m = t.town.anyMember(t.dice)
	}
	if m == contact || t.town.hasContact(m, contact) {
		return nil
	}
	grant := site.Grant{Friend: t.dice.IntN(5) == 0, Family: t.dice.IntN(15) == 0}
	if err := t.cfg.Site.SetContact(ctx, m, contact, grant); err != nil {
		return err
	}
	t.town.setContact(m, contact, true)
	t.town.addEvent(event{kind: "contact", member: m, text: fmt.Sprintf("%s added %s as a contact", t.town.name(m), t.town.name(contact))})
	return nil
}

func (t *traffic) removeContact(ctx context.Context) error {
	m := t.town.star(t.dice)
	// Short lists stay as they are, or they would soon be empty.
	if t.dice.IntN(3) > 0 || t.town.contactCount(m) < 20 {
		m = t.town.anyMember(t.dice)
	}
	contact := t.town.contactOf(t.dice, m, 0)
	if contact == 0 {
		return nil
	}
	if err := t.cfg.Site.RemoveContact(ctx, m, contact); err != nil {
		return err
	}
	t.town.setContact(m, contact, false)
	t.town.addEvent(event{kind: "contact", member: m, text: fmt.Sprintf("%s removed %s from the contacts", t.town.name(m), t.town.name(contact))})
	return nil
}

func (t *traffic) flipVisibility(ctx context.Context) error {
	u, ok := t.town.anyUpload(t.dice)
	if !ok {
		return nil
	}
	v := contacts.Private
	if u.visibility == contacts.Private {
		v = contacts.Public
	}
	return t.setVisibility(ctx, u, v, false)
}

// block blocks a follower or, from some blocks on, takes back the oldest.
func (t *traffic) block(ctx context.Context) error {
	const maxBlocks = 4
	if len(t.blocks) >= maxBlocks {
		b := t.blocks[0]
		t.blocks = t.blocks[1:]
		if err := t.cfg.Site.Unblock(ctx, b.Member, b.Blocked); err != nil {
			return err
		}
		t.town.addEvent(event{kind: "privacy", member: b.Member, text: fmt.Sprintf("%s unblocked %s", t.town.name(b.Member), t.town.name(b.Blocked))})
		return nil
	}
	blocked := t.town.star(t.dice)
	m := t.town.contactOf(t.dice, blocked, 0)
	if m == 0 {
		return nil
	}
	if err := t.cfg.Site.Block(ctx, m, blocked); err != nil {
		return err
	}
	t.blocks = append(t.blocks, world.Block{Member: m, Blocked: blocked})
	t.town.addEvent(event{kind: "privacy", member: m, text: fmt.Sprintf("%s blocked %s", t.town.name(m), t.town.name(blocked))})
	return nil
}

// upload uploads a photo for the traffic, or for a visitor of the page: then the followers are
// notified. It chooses the id, because the title must fit the picture, and the picture is drawn
// from the id.
func (d *Demo) upload(ctx context.Context, owner member.ID, v contacts.Visibility, you bool) (upload, error) {
	id := d.lastPhoto.Add(1)
	p := site.Photo{ID: id, Owner: owner, Title: d.cfg.World.Title(id), Visibility: v, DateUpload: uint64(time.Now().Unix())}
	if you && d.cfg.Phones != nil {
		p.Notify = eventOf(id, p.Title)
	}
	if _, err := d.cfg.Site.Upload(ctx, p); err != nil {
		return upload{}, err
	}
	d.town.addEvent(event{kind: "upload", member: owner, you: you, text: fmt.Sprintf("%s uploaded “%s” (%s)", d.town.name(owner), p.Title, shownTo(v))})
	return upload{id: id, owner: owner, title: p.Title, visibility: v}, nil
}

// setVisibility changes a photo for the traffic, or for a visitor of the page.
func (d *Demo) setVisibility(ctx context.Context, u upload, v contacts.Visibility, you bool) error {
	if err := d.cfg.Site.SetVisibility(ctx, u.id, v); err != nil {
		return err
	}
	d.town.setVisibility(u.id, v)
	d.town.addEvent(event{kind: "privacy", member: u.owner, you: you, text: fmt.Sprintf("%s made “%s” %s", d.town.name(u.owner), u.title, shownTo(v))})
	return nil
}

func shownTo(v contacts.Visibility) string {
	switch v {
	case contacts.Friends:
		return "for friends"
	case contacts.Family:
		return "for family"
	case contacts.FriendsFamily:
		return "for friends and family"
	case contacts.Followers:
		return "for followers"
	default:
		return string(v)
	}
}
