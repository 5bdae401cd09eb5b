package tasks_test

import (
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// change makes one random change to the site and to the test's record of it.
func (s *schedule) change() error {
	switch k := s.choose(100); {
	case k < s.toggles:
		return s.toggleContact()
	case k < 85:
		return s.upload()
	case k < 90:
		return s.setVisibility()
	case k < 95:
		return s.grant()
	default:
		return s.blockOrUnblock()
	}
}

// toggleContact adds a contact or, if it is one, removes it.
func (s *schedule) toggleContact() error {
	pair := contacts.Pair{User: s.someViewer(), Contact: s.someMember()}
	if _, isContact := s.world.contacts[pair]; !isContact {
		return s.setContact(pair.User, pair.Contact, site.Grant{})
	}
	if s.choose(3) == 0 { // more come than go
		return s.upload()
	}
	s.logf("%s removes %s", pair.User, pair.Contact)
	delete(s.world.contacts, pair)
	return s.site.RemoveContact(s.ctx, pair.User, pair.Contact)
}

func (s *schedule) setContact(user, contact member.ID, g site.Grant) error {
	s.logf("%s adds %s", user, contact)
	s.world.contacts[contacts.Pair{User: user, Contact: contact}] = g
	return s.site.SetContact(s.ctx, user, contact, g)
}

// grant makes a member call a viewer a contact, so that it may see more. The
// member gets a set of its own by that, in which the viewer may be.
func (s *schedule) grant() error {
	return s.setContact(s.someMember(), s.someViewer(), site.Grant{Friend: s.choose(2) == 0, Family: s.choose(2) == 0})
}

func (s *schedule) upload() error {
	if s.choose(20) == 0 {
		return s.uploadOf(s.someViewer())
	}
	return s.uploadOf(s.someMember())
}

// uploadOf happens mostly now or in the second of the upload before it,
// sometimes with a date from the past.
func (s *schedule) uploadOf(owner member.ID) error {
	date := s.clock
	switch k := s.choose(8); {
	case k < 3:
		s.clock++
		date++
	case k > 7-s.backdated:
		date -= uint64(s.choose(8))
	}
	p := photo{owner: owner, date: date, visibility: s.someVisibility()}
	s.logf("%s uploads at %d", owner, date)
	s.world.last[owner] = max(s.world.last[owner], date)
	id, err := s.site.Upload(s.ctx, site.Photo{Owner: owner, Visibility: p.visibility, DateUpload: date})
	p.id = id
	s.world.photos = append(s.world.photos, p)
	return err
}

func (s *schedule) setVisibility() error {
	if len(s.world.photos) == 0 {
		return nil
	}
	p := &s.world.photos[s.choose(len(s.world.photos))]
	p.visibility = s.someVisibility()
	return s.site.SetVisibility(s.ctx, p.id, p.visibility)
}

func (s *schedule) blockOrUnblock() error {
	owner, viewer := s.someMember(), s.someViewer()
	pair := contacts.Pair{User: owner, Contact: viewer}
	s.world.blocks[pair] = !s.world.blocks[pair]
	if s.world.blocks[pair] {
		return s.site.Block(s.ctx, owner, viewer)
	}
	return s.site.Unblock(s.ctx, owner, viewer)
}

func (s *schedule) someViewer() member.ID {
	if s.hot.User > 0 && s.choose(2) == 0 {
		return s.hot.User
	}
	return s.viewers[s.choose(len(s.viewers))]
}

func (s *schedule) someMember() member.ID {
	if s.hot.Contact > 0 && s.choose(2) == 0 {
		return s.hot.Contact
	}
	return s.members[s.choose(len(s.members))]
}

func (s *schedule) someVisibility() contacts.Visibility {
	all := []contacts.Visibility{
		contacts.Public, contacts.Public, contacts.Public, contacts.Public,
		contacts.Private, contacts.Friends, contacts.Family, contacts.FriendsFamily,
	}
	return all[s.choose(len(all))]
}
