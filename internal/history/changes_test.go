package history_test

import (
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/site"
)

// The changes that members make, to the site and to the test's record of it. From
// each of them on, the requests under way may be shown something else.

// changed ends a change.
func (s *stage) changed(err error) error {
	s.counted.changes++
	s.calm = false
	for _, r := range s.requests {
		r.look(s.world)
	}
	return err
}

func (s *stage) join(id member.ID) error {
	s.logf("%s becomes a member", id)
	s.world.members[id] = true
	return s.changed(s.site.AddMember(s.ctx, id, "member "+id.String()))
}

// leave deletes a member, with all that is of it or about it.
func (s *stage) leave(id member.ID) error {
	s.logf("%s is deleted", id)
	w := s.world
	delete(w.members, id)
	delete(w.last, id)
	about := func(p contacts.Pair) bool { return p.User == id || p.Contact == id }
	maps.DeleteFunc(w.contacts, func(p contacts.Pair, _ site.Grant) bool { return about(p) })
	maps.DeleteFunc(w.blocks, func(p contacts.Pair, _ bool) bool { return about(p) })
	w.photos = slices.DeleteFunc(w.photos, func(p photo) bool { return p.owner == id })
	return s.changed(s.site.DeleteMember(s.ctx, id))
}

// replace deletes a member, and inserts it again in the same transaction with an earlier last upload: the
// date of the newest remaining photo, after the deletion of its newest. Private photos do not matter to it,
// unless the site always counts them.
func (s *stage) replace(id member.ID) error {
	var newest, left uint64
	counts := func(p photo) bool {
		return p.owner == id && (p.visibility != contacts.Private || s.private == alwaysCount)
	}
	for _, p := range s.world.photos {
		if counts(p) && p.date > newest {
			newest, left = p.date, newest
		} else if counts(p) && p.date < newest {
			left = max(left, p.date)
		}
	}
	for i, p := range slices.Backward(s.world.photos) {
		if counts(p) && p.date == newest {
			if err := s.deletePhoto(i); err != nil {
				return err
			}
		}
	}
	s.logf("%s is deleted and inserted again, last upload %d", id, left)
	s.world.last[id] = left
	return s.changed(s.site.ReplaceMember(s.ctx, id, left))
}

// call makes contact a contact of user, or changes the user's grant.
func (s *stage) call(user, contact member.ID, g site.Grant) error {
	s.logf("%s calls %s a contact, friend %v, family %v", user, contact, g.Friend, g.Family)
	s.world.contacts[contacts.Pair{User: user, Contact: contact}] = g
	return s.changed(s.site.SetContact(s.ctx, user, contact, g))
}

func (s *stage) drop(user, contact member.ID) error {
	s.logf("%s removes %s", user, contact)
	delete(s.world.contacts, contacts.Pair{User: user, Contact: contact})
	return s.changed(s.site.RemoveContact(s.ctx, user, contact))
}

// privateUploads are the meanings that a site may give to last_upload, as far as private
// photos go.
type privateUploads int

const (
	neverCount     privateUploads = iota // a private upload writes nothing; showing the photo is the event
	alwaysCount                          // a private upload is the event; showing the photo writes nothing
	sometimesCount                       // a private upload may be an event, by stage.counts; showing the photo is an event
)

// upload does nothing for who is no member.
func (s *stage) upload(owner member.ID, date uint64, v contacts.Visibility) error {
	if !s.world.members[owner] {
		return nil
	}
	countsPrivate := v == contacts.Private && (s.private == alwaysCount || s.private == sometimesCount && s.counts)
	if countsPrivate || v != contacts.Private {
		s.world.last[owner] = max(s.world.last[owner], date)
	}
	if countsPrivate {
		s.site.Store.SetLastUpload(owner, date)
	}
	id, err := s.site.Upload(s.ctx, site.Photo{Owner: owner, Visibility: v, DateUpload: date})
	if countsPrivate && s.site.Emit != nil {
		err = s.site.Emit(s.ctx, site.Event{Type: site.EventUpload, User: owner})
	}
	s.logf("%s uploads photo %d at %d, %s; last upload %d", owner, id, date, v, s.world.last[owner])
	s.world.photos = append(s.world.photos, photo{id: id, owner: owner, date: date, visibility: v})
	return s.changed(err)
}

// see changes who sees a photo.
func (s *stage) see(i int, v contacts.Visibility) error {
	p := &s.world.photos[i]
	isShown := p.visibility == contacts.Private && v != contacts.Private
	p.visibility = v
	if isShown && s.private != alwaysCount {
		s.counted.shown++
		s.world.last[p.owner] = max(s.world.last[p.owner], p.date)
	}
	s.logf("%s makes photo %d %s; last upload %d", p.owner, p.id, v, s.world.last[p.owner])
	switch {
	case s.private == alwaysCount, isShown && s.forgetsBoth:
		s.site.Store.SetVisibility(p.id, v)
	case isShown && s.forgetsEvent:
		s.site.Store.SetLastUpload(p.owner, p.date)
		s.site.Store.SetVisibility(p.id, v)
	default:
		return s.changed(s.site.SetVisibility(s.ctx, p.id, v))
	}
	return s.changed(nil)
}

// lower lowers the last upload of a member to its least value, without a task, as docs/setup.md allows a
// site that counted private uploads before.
func (s *stage) lower(id member.ID) error {
	var newest uint64
	for _, p := range s.world.photos {
		if p.owner == id && p.visibility != contacts.Private {
			newest = max(newest, p.date)
		}
	}
	if s.private == alwaysCount || newest >= s.world.last[id] {
		return nil
	}
	s.logf("the last upload of %s is lowered to %d", id, newest)
	s.world.last[id] = newest
	s.site.Store.ReplaceMember(id, newest)
	return s.changed(nil)
}

func (s *stage) deletePhoto(i int) error {
	p := s.world.photos[i]
	s.logf("%s deletes photo %d", p.owner, p.id)
	s.world.photos = slices.Delete(s.world.photos, i, i+1)
	return s.changed(s.site.DeletePhoto(s.ctx, p.id))
}

// block blocks or, if that is done, takes it back.
func (s *stage) block(owner, blocked member.ID) error {
	pair := contacts.Pair{User: owner, Contact: blocked}
	s.logf("%s blocks %s: %v", owner, blocked, !s.world.blocks[pair])
	if s.oneWay && owner < 10 { // reads miss the blocks by viewers
		s.world.blocks[pair] = !s.world.blocks[pair]
		return nil
	}
	if s.world.blocks[pair] {
		delete(s.world.blocks, pair)
		return s.changed(s.site.Unblock(s.ctx, owner, blocked))
	}
	s.world.blocks[pair] = true
	return s.changed(s.site.Block(s.ctx, owner, blocked))
}

func (h *history) change() error {
	if h.broadcasts != nil && h.choose(8) == 7 {
		return h.comesOrGoes()
	}
	switch k := h.choose(100 + h.fickle); {
	case k < h.toggles:
		return h.toggleContact()
	case k < 79:
		return h.someUpload()
	case k < 86:
		return h.seeSome()
	case k < 87:
		return h.lower(h.someMember())
	case k < 90:
		return h.deleteSome()
	case k < 95:
		return h.grant()
	case k < 98:
		return h.block(h.someMember(), h.someViewer())
	case k < 100:
		return h.block(h.someViewer(), h.someMember())
	default:
		return h.comeOrGo()
	}
}

// toggleContact adds or removes a contact.
func (h *history) toggleContact() error {
	user, contact := h.someViewer(), h.someMember()
	if !h.world.members[user] {
		return h.join(user)
	}
	if _, called := h.world.contacts[contacts.Pair{User: user, Contact: contact}]; !called {
		return h.call(user, contact, site.Grant{})
	}
	if h.choose(3) == 2 { // more come than go
		return h.someUpload()
	}
	return h.drop(user, contact)
}

// comeOrGo makes somebody a member, or deletes a member, who may come back at once. A deleted member can
// still be called a contact, and come later.
func (h *history) comeOrGo() error {
	id := h.someMember()
	if h.choose(6) == 5 {
		id = h.someViewer()
	}
	switch {
	case !h.world.members[id]:
		return h.join(id)
	case h.choose(3) == 2:
		return h.replace(id)
	}
	return h.leave(id)
}

// grant makes a member call a viewer a contact, so that the viewer may see more. The member thereby gets a
// set of its own, which may hold the viewer.
func (h *history) grant() error {
	user, contact := h.someMember(), h.someViewer()
	if !h.world.members[user] {
		return h.join(user)
	}
	return h.call(user, contact, site.Grant{Friend: h.choose(2) == 0, Family: h.choose(2) == 0})
}

func (h *history) someUpload() error {
	if h.broadcasts != nil && h.last != 0 && h.choose(2) == 1 {
		return h.uploadOf(h.last)
	}
	if h.choose(20) == 19 {
		return h.uploadOf(h.someViewer())
	}
	return h.uploadOf(h.someMember())
}

// uploadOf happens mostly now or in the second of the upload before it,
// sometimes with a date from the past.
func (h *history) uploadOf(owner member.ID) error {
	date := h.clock
	switch k := h.choose(8); {
	case k < 3-h.backdated/4:
		h.clock++
		date++
	case k >= 8-h.backdated:
		date -= uint64(h.choose(8))
	}
	return h.upload(owner, date, h.someVisibility())
}

func (h *history) seeSome() error {
	if len(h.world.photos) == 0 {
		return nil
	}
	i, v := h.somePhoto(), h.someVisibility()
	if v == contacts.Private && h.world.photos[i].visibility == contacts.Private {
		v = contacts.Public
	}
	return h.see(i, v)
}

func (h *history) deleteSome() error {
	if len(h.world.photos) == 0 {
		return nil
	}
	return h.deletePhoto(h.somePhoto())
}

// somePhoto returns the index of any photo, often of a new photo.
func (h *history) somePhoto() int {
	n := len(h.world.photos)
	if h.choose(2) == 0 {
		return n - 1 - h.choose(min(n, 4))
	}
	return h.choose(n)
}

func (h *history) someViewer() member.ID {
	if h.hot.User > 0 && h.choose(2) == 0 {
		return h.hot.User
	}
	return h.viewers[h.choose(len(h.viewers))]
}

func (h *history) someMember() member.ID {
	if h.hot.Contact > 0 && h.choose(2) == 0 {
		return h.hot.Contact
	}
	return h.members[h.choose(len(h.members))]
}

// visibilities are all, and half of them public.
var visibilities = append(slices.Repeat([]contacts.Visibility{contacts.Public}, 3), contacts.Classes()...)

func (h *history) someVisibility() contacts.Visibility {
	if h.choose(8) < h.secretive {
		return contacts.Private
	}
	return visibilities[h.choose(len(visibilities))]
}

// hintAtRandom enqueues a task that need not be done, and must change nothing. Operators, audits and late
// hints enqueue such tasks.
func (h *history) hintAtRandom() error {
	if h.choose(2) == 0 {
		return h.enqueue(tasks.NewRefill(h.someViewer()))
	}
	return h.enqueue(tasks.NewAddContact(h.someViewer(), h.someMember()))
}
