package site

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

// Memory is a site over [contactstest.Memory].
type Memory struct {
	// Store holds the site's data.
	Store *contactstest.Memory
	// Emit is called after each change that concerns the index, and may be nil. The change returns Emit's
	// error, and is made nevertheless.
	Emit func(ctx context.Context, e Event) error
}

func (s *Memory) emit(ctx context.Context, e Event) error {
	if s.Emit == nil {
		return nil
	}
	if err := s.Emit(ctx, e); err != nil {
		return fmt.Errorf("emitting %s of member %d: %w", e.Type, e.User, err)
	}
	return nil
}

// AddMember implements [Site].
func (s *Memory) AddMember(_ context.Context, id member.ID, username string) error {
	s.Store.AddMember(id, username)
	return nil
}

// DeleteMember implements [Site].
func (s *Memory) DeleteMember(ctx context.Context, id member.ID) error {
	return s.left(ctx, id, s.Store.DeleteMember(id))
}

// left emits the events of a deletion of a member with some followers.
func (s *Memory) left(ctx context.Context, id member.ID, followers []member.ID) error {
	for _, follower := range followers {
		if err := s.emit(ctx, Event{Type: EventRemoveContact, User: follower, Contact: id}); err != nil {
			return err
		}
	}
	return s.emit(ctx, Event{Type: EventRefill, User: id})
}

// ReplaceMember deletes a member and inserts it again at once, as REPLACE INTO users does. The last upload
// becomes lastUpload, which may be earlier; all else stays. The member must have no photo that is newer. It
// emits the events of a deletion and, unless lastUpload is 0, of an upload.
func (s *Memory) ReplaceMember(ctx context.Context, id member.ID, lastUpload uint64) error {
	if err := s.left(ctx, id, s.Store.ReplaceMember(id, lastUpload)); err != nil || lastUpload == 0 {
		return err
	}
	return s.emit(ctx, Event{Type: EventUpload, User: id})
}

// SetContact implements [Site].
func (s *Memory) SetContact(ctx context.Context, user, contact member.ID, g Grant) error {
	s.Store.SetContact(user, contact, g.Friend, g.Family)
	return s.emit(ctx, Event{Type: EventAddContact, User: user, Contact: contact})
}

// RemoveContact implements [Site].
func (s *Memory) RemoveContact(ctx context.Context, user, contact member.ID) error {
	s.Store.RemoveContact(user, contact)
	return s.emit(ctx, Event{Type: EventRemoveContact, User: user, Contact: contact})
}

// Block implements [Site].
func (s *Memory) Block(_ context.Context, user, blocked member.ID) error {
	s.Store.Block(user, blocked)
	return nil
}

// Unblock implements [Site].
func (s *Memory) Unblock(_ context.Context, user, blocked member.ID) error {
	s.Store.Unblock(user, blocked)
	return nil
}

// Upload implements [Site].
func (s *Memory) Upload(ctx context.Context, p Photo) (uint64, error) {
	id := s.upload(p)
	if p.Visibility == contacts.Private {
		return id, nil
	}
	return id, s.emit(ctx, Event{Type: EventUpload, User: p.Owner})
}

// upload sets the last upload first: a reader between the two steps may find a last
// upload whose photo is missing, as after a deletion, but never a photo that is not
// private and newer than its owner's last upload.
func (s *Memory) upload(p Photo) uint64 {
	if p.Visibility != contacts.Private {
		s.Store.SetLastUpload(p.Owner, p.DateUpload)
	}
	return s.Store.AddPhoto(p.ID, p.Owner, p.Title, p.Visibility, p.DateUpload)
}

// SetVisibility implements [Site].
func (s *Memory) SetVisibility(ctx context.Context, photoID uint64, v contacts.Visibility) error {
	owner, before, date, exists := s.Store.OwnerOf(photoID)
	isShown := exists && before == contacts.Private && v != contacts.Private
	if isShown {
		s.Store.SetLastUpload(owner, date)
	}
	s.Store.SetVisibility(photoID, v)
	if !isShown {
		return nil
	}
	return s.emit(ctx, Event{Type: EventUpload, User: owner})
}

// DeletePhoto implements [Site].
func (s *Memory) DeletePhoto(_ context.Context, photoID uint64) error {
	s.Store.DeletePhoto(photoID)
	return nil
}

// LoadMembers implements [Site].
func (s *Memory) LoadMembers(_ context.Context, members []Member) error {
	for _, m := range members {
		s.Store.AddMember(m.ID, m.Username)
	}
	return nil
}

// LoadContacts implements [Site].
func (s *Memory) LoadContacts(_ context.Context, relations []Relation) error {
	for _, r := range relations {
		s.Store.SetContact(r.User, r.Contact, r.Grant.Friend, r.Grant.Family)
	}
	return nil
}

// LoadPhotos implements [Site].
func (s *Memory) LoadPhotos(_ context.Context, photos []Photo) error {
	for _, p := range photos {
		s.upload(p)
	}
	return nil
}
