package contacts

import (
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/member"
)

// AddMember adds a member that never uploaded, or gives one a new name.
func (m *Memory) AddMember(id member.ID, username string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.users[id]
	u.name = username
	m.users[id] = u
}

// DeleteMember removes a member with its contacts, its photos, the blocks that
// it set or suffered, and its place among the contacts of others. It returns
// those others, ascending.
func (m *Memory) DeleteMember(id member.ID) (followers []member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.users, id)
	followers = slices.Sorted(maps.Keys(m.followers[id]))
	for _, follower := range followers {
		m.removeContact(follower, id)
	}
	for _, contact := range slices.Collect(maps.Keys(m.contacts[id])) {
		m.removeContact(id, contact)
	}
	maps.DeleteFunc(m.blocks, func(p Pair, _ struct{}) bool { return p.User == id || p.Contact == id })
	for photoID := range m.owned[id] {
		delete(m.photos, photoID)
	}
	delete(m.owned, id)
	return followers
}

// ReplaceMember gives a member another last upload, also an earlier one, as when it is
// deleted and inserted again in one transaction. It returns its followers, ascending.
func (m *Memory) ReplaceMember(id member.ID, lastUpload uint64) (followers []member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.users[id]
	u.lastUpload = lastUpload
	m.users[id] = u
	return slices.Sorted(maps.Keys(m.followers[id]))
}

// SetContact makes contact a contact of user, with what user grants it, or
// changes that grant. Like the tables, it does not ask whether they are members.
func (m *Memory) SetContact(user, contact member.ID, friend, family bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	within(m.contacts, user)[contact] = grant{friend: friend, family: family}
	within(m.followers, contact)[user] = struct{}{}
}

// RemoveContact makes contact no contact of user any more, if it was one.
func (m *Memory) RemoveContact(user, contact member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeContact(user, contact)
}

func (m *Memory) removeContact(user, contact member.ID) {
	delete(m.contacts[user], contact)
	delete(m.followers[contact], user)
}

// Block hides everything of user's from blocked.
func (m *Memory) Block(user, blocked member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocks[Pair{User: user, Contact: blocked}] = struct{}{}
}

// Unblock takes a [Memory.Block] back, if there was one.
func (m *Memory) Unblock(user, blocked member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blocks, Pair{User: user, Contact: blocked})
}

// AddPhoto adds a photo, uploaded at date in unix seconds, and returns its id:
// the given one, which must be new, or with 0 the next above all so far. Setting
// the owner's last upload is left to the caller, see [Memory.SetLastUpload].
func (m *Memory) AddPhoto(id uint64, owner member.ID, title string, visibility Visibility, date uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == 0 {
		id = m.lastPhoto + 1
	}
	m.lastPhoto = max(m.lastPhoto, id)
	m.photos[id] = photo{
		Photo: Photo{ID: id, Title: title, DateUpload: date}, owner: owner, visibility: visibility,
	}
	within(m.owned, owner)[id] = struct{}{}
	return id
}

// SetVisibility changes the visibility of a photo, if it exists.
func (m *Memory) SetVisibility(photoID uint64, visibility Visibility) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.photos[photoID]; ok {
		p.visibility = visibility
		m.photos[photoID] = p
	}
}

// DeletePhoto removes a photo, if it exists. The owner's last upload stays.
func (m *Memory) DeletePhoto(photoID uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owned[m.photos[photoID].owner], photoID)
	delete(m.photos, photoID)
}

// SetLastUpload raises the last upload of user to date, in unix seconds, if user is a
// member and date is later.
func (m *Memory) SetLastUpload(user member.ID, date uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u, ok := m.users[user]; ok {
		u.lastUpload = max(u.lastUpload, date)
		m.users[user] = u
	}
}

// within returns the inner map of key, made if it is missing.
func within[K, L comparable, V any](outer map[K]map[L]V, key K) map[L]V {
	inner, ok := outer[key]
	if !ok {
		inner = map[L]V{}
		outer[key] = inner
	}
	return inner
}
