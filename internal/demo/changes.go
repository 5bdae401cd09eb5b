package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// The changes that traffic and visitors make. Each goes to the site first and,
// once it is there, into the demo's own memory and the feed of events.

func (d *Demo) upload(ctx context.Context, owner member.ID, v contacts.Visibility, you bool) error {
	// The id is chosen here, because the title has to fit the picture, and the
	// picture follows from the id.
	id := d.lastPhoto.Add(1)
	p := site.Photo{ID: id, Owner: owner, Title: d.cfg.World.Title(id), Visibility: v, DateUpload: uint64(time.Now().Unix())}
	if _, err := d.cfg.Site.Upload(ctx, p); err != nil {
		return fmt.Errorf("upload a photo as member %s: %w", owner, err)
	}
	d.memory.addUpload(upload{id: id, owner: owner, title: p.Title, visibility: v})
	d.log(Event{Kind: "upload", Who: owner, You: you, Text: fmt.Sprintf("%s uploaded “%s” (%s)", d.memory.name(owner), p.Title, shownTo(v))})
	return nil
}

func (d *Demo) setVisibility(ctx context.Context, p upload, v contacts.Visibility, you bool) error {
	if err := d.cfg.Site.SetVisibility(ctx, p.id, v); err != nil {
		return fmt.Errorf("change the visibility of photo %d: %w", p.id, err)
	}
	d.memory.setVisibility(p.id, v)
	d.log(Event{Kind: "privacy", Who: p.owner, You: you, Text: fmt.Sprintf("%s made “%s” %s", d.memory.name(p.owner), p.title, shownTo(v))})
	return nil
}

func (d *Demo) addContact(ctx context.Context, user, contact member.ID, grant site.Grant) error {
	if err := d.cfg.Site.SetContact(ctx, user, contact, grant); err != nil {
		return fmt.Errorf("add contact %s of member %s: %w", contact, user, err)
	}
	d.memory.addContact(user, contact)
	d.log(Event{Kind: "add", Who: user, Text: fmt.Sprintf("%s added %s as a contact", d.memory.name(user), d.memory.name(contact))})
	return nil
}

func (d *Demo) removeContact(ctx context.Context, user, contact member.ID) error {
	if err := d.cfg.Site.RemoveContact(ctx, user, contact); err != nil {
		return fmt.Errorf("remove contact %s of member %s: %w", contact, user, err)
	}
	d.memory.removeContact(user, contact)
	d.log(Event{Kind: "remove", Who: user, Text: fmt.Sprintf("%s removed %s from the contacts", d.memory.name(user), d.memory.name(contact))})
	return nil
}

func (d *Demo) block(ctx context.Context, b world.Block) error {
	if err := d.cfg.Site.Block(ctx, b.User, b.Blocked); err != nil {
		return fmt.Errorf("block member %s for member %s: %w", b.Blocked, b.User, err)
	}
	d.log(Event{Kind: "block", Who: b.User, Text: fmt.Sprintf("%s blocked %s", d.memory.name(b.User), d.memory.name(b.Blocked))})
	return nil
}

func (d *Demo) unblock(ctx context.Context, b world.Block) error {
	if err := d.cfg.Site.Unblock(ctx, b.User, b.Blocked); err != nil {
		return fmt.Errorf("unblock member %s for member %s: %w", b.Blocked, b.User, err)
	}
	d.log(Event{Kind: "block", Who: b.User, Text: fmt.Sprintf("%s unblocked %s", d.memory.name(b.User), d.memory.name(b.Blocked))})
	return nil
}

func (d *Demo) wipe(ctx context.Context) error {
	if err := d.cfg.Wipe(ctx); err != nil {
		return fmt.Errorf("wipe Redis: %w", err)
	}
	d.log(Event{Kind: "wipe", You: true, Text: "Redis was wiped: every set is gone"})
	return nil
}

func (d *Demo) log(e Event) {
	e.At = time.Now()
	d.memory.addEvent(e)
}

// shownTo says a visibility in plain words.
func shownTo(v contacts.Visibility) string {
	switch v {
	case contacts.Friends:
		return "for friends"
	case contacts.Family:
		return "for family"
	case contacts.FriendsFamily:
		return "for friends and family"
	default:
		return string(v)
	}
}
