// Package contactstest has a made-up site in memory that answers as [contacts.MySQL] does: the specification of its
// SQL, for tests and the demo.
package contactstest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Memory is the site. Each answer is the plainest code over its tables, with nothing prepared, and each change and each
// answer is atomic. The methods fail only with the error of a context that has ended, and with errors of package contacts.
type Memory struct {
	mu         sync.Mutex
	users      map[member.ID]user
	contacts   map[member.ID]map[member.ID]contacts.Granted // by user, by contact
	blocks     map[contacts.Pair]bool                       // User blocks Contact
	photos     map[member.ID]map[uint64]photo               // by owner, by id
	lastPhoto  uint64                                       // the highest id of a photo that was ever used
	broadcasts map[member.ID]*contacts.Broadcast
	leavings   int64 // how many broadcast members were told to cease, for Broadcast.Leaving
}

type user struct {
	name       string
	lastUpload uint64
}

type photo struct {
	contacts.Photo
	visibility contacts.Visibility
}

// NewMemory returns a site without members.
func NewMemory() *Memory {
	return &Memory{
		users: map[member.ID]user{}, contacts: map[member.ID]map[member.ID]contacts.Granted{}, blocks: map[contacts.Pair]bool{},
		photos: map[member.ID]map[uint64]photo{}, broadcasts: map[member.ID]*contacts.Broadcast{},
	}
}

func (m *Memory) lock() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

// missing is the error of a question for a viewer that does not exist.
func (m *Memory) missing(ctx context.Context, id member.ID) error {
	if _, exists := m.users[id]; !exists {
		return fmt.Errorf("%w: %d", contacts.ErrNoMember, id)
	}
	return ctx.Err()
}

// lookUp makes a map of the keys that have a value.
func lookUp[K comparable, V any](keys []K, value func(K) (V, bool)) map[K]V {
	found := make(map[K]V)
	for _, key := range keys {
		if v, ok := value(key); ok {
			found[key] = v
		}
	}
	return found
}

// first returns the first limit of a list.
func first[T any](list []T, limit int) []T {
	if limit = min(limit, len(list)); limit <= 0 {
		return nil
	}
	return list[:limit]
}

// page returns the first limit of ids above after.
func page(ids iter.Seq[member.ID], after member.ID, limit int) []member.ID {
	return first(slices.DeleteFunc(slices.Sorted(ids), func(id member.ID) bool { return id <= after }), limit)
}

// byRecency sorts by last upload, then id, both descending.
func byRecency(list []contacts.Contact) []contacts.Contact {
	slices.SortFunc(list, func(a, b contacts.Contact) int {
		return cmp.Or(cmp.Compare(b.LastUpload, a.LastUpload), cmp.Compare(b.ID, a.ID))
	})
	return list
}

// Members is [contacts.MySQL.Members].
func (m *Memory) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	defer m.lock()()
	return page(maps.Keys(m.users), after, limit), ctx.Err()
}

// CountMembers is [contacts.MySQL.CountMembers].
func (m *Memory) CountMembers(ctx context.Context, first, last member.ID) (n int64, err error) {
	defer m.lock()()
	for id := range m.users {
		if id >= first && id <= last {
			n++
		}
	}
	return n, ctx.Err()
}

// NthMember is [contacts.MySQL.NthMember].
func (m *Memory) NthMember(ctx context.Context, after member.ID, n int64) (member.ID, error) {
	ids, err := m.Members(ctx, after, int(n))
	if err != nil || int64(len(ids)) < n {
		return 0, err
	}
	return ids[n-1], nil
}

// LastUploads is [contacts.MySQL.LastUploads].
func (m *Memory) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	defer m.lock()()
	return lookUp(ids, func(id member.ID) (uint64, bool) {
		u, isMember := m.users[id]
		return u.lastUpload, isMember
	}), ctx.Err()
}

// Newest is [contacts.MySQL.Newest].
func (m *Memory) Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error) {
	defer m.lock()()
	return lookUp(ids, func(id member.ID) (contacts.Newest, bool) {
		u, isMember := m.users[id]
		n := contacts.Newest{LastUpload: u.lastUpload}
		for _, p := range m.photos[id] {
			if p.visibility == contacts.Private {
				n.Private = max(n.Private, p.DateUpload)
			} else {
				n.Photo = max(n.Photo, p.DateUpload)
			}
		}
		return n, isMember
	}), ctx.Err()
}

// Relations is [contacts.MySQL.Relations].
func (m *Memory) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	defer m.lock()()
	return lookUp(pairs, func(p contacts.Pair) (uint64, bool) {
		u, isMember := m.users[p.Contact]
		return u.lastUpload, m.contacts[p.User][p.Contact].Contact && isMember
	}), ctx.Err()
}

// TopContacts is [contacts.MySQL.TopContacts].
func (m *Memory) TopContacts(ctx context.Context, ids []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	defer m.lock()()
	return lookUp(ids, func(id member.ID) ([]contacts.Contact, bool) {
		var all []contacts.Contact
		for contact := range m.contacts[id] {
			if at := m.users[contact].lastUpload; at > 0 {
				all = append(all, contacts.Contact{ID: contact, LastUpload: at})
			}
		}
		_, isMember := m.users[id]
		all = first(byRecency(all), limit)
		return all, isMember && len(all) > 0
	}), ctx.Err()
}

// FollowerPages is [contacts.MySQL.FollowerPages].
func (m *Memory) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	defer m.lock()()
	found := make([][]member.ID, len(pages))
	for i, p := range pages {
		found[i] = page(slices.Values(m.followers(p.Of)), p.After, limit)
	}
	return found, ctx.Err()
}

// followers returns the followers of a member, ascending.
func (m *Memory) followers(of member.ID) (ids []member.ID) {
	for user, list := range m.contacts {
		if list[of].Contact {
			ids = append(ids, user)
		}
	}
	slices.Sort(ids)
	return ids
}

// HasFollowers is [contacts.MySQL.HasFollowers].
func (m *Memory) HasFollowers(ctx context.Context, id member.ID, n int) (bool, error) {
	defer m.lock()()
	return len(m.followers(id)) >= n, ctx.Err()
}

// Look is [contacts.MySQL.Look].
func (m *Memory) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	defer m.lock()()
	l := contacts.Look{Album: m.album(v, owner, limit), Above: first(m.uploads(v, bound), 2)}
	for _, b := range m.broadcasts {
		if b.LastUpload < bound {
			l.Below = max(l.Below, b.LastUpload)
		}
	}
	return l, ctx.Err()
}

// uploads returns the broadcast members that v calls contacts and whose last upload is at least a bound.
func (m *Memory) uploads(v contacts.Viewer, bound uint64) (list []contacts.Contact) {
	for _, b := range m.broadcasts {
		if m.contacts[v.ID][b.ID].Contact && b.LastUpload >= bound {
			list = append(list, contacts.Contact{ID: b.ID, LastUpload: b.LastUpload})
		}
	}
	return byRecency(list)
}

// compared is how many broadcast contacts a comparison looks at.
const compared = 32

// Compare is [contacts.MySQL.Compare].
func (m *Memory) Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (c contacts.Comparison, err error) {
	defer m.lock()()
	if err := m.missing(ctx, v.ID); err != nil {
		return c, err
	}
	uploads := m.uploads(v, bound+1)
	if len(uploads) > compared {
		c.Beyond = uploads[compared].LastUpload
	}
	for _, owner := range owners {
		c.Standings = append(c.Standings, m.standing(v, owner))
	}
	for _, b := range first(uploads, compared) {
		if !slices.Contains(owners, b.ID) {
			c.Broadcasts, c.Standings = append(c.Broadcasts, b), append(c.Standings, m.standing(v, b.ID))
		}
	}
	return c, nil
}

// Details is [contacts.MySQL.Details].
func (m *Memory) Details(ctx context.Context, v contacts.Viewer, owners []member.ID) (all []contacts.Detail, err error) {
	defer m.lock()()
	if err := m.missing(ctx, v.ID); err != nil {
		return nil, err
	}
	for _, owner := range owners {
		all = append(all, m.detail(v, owner))
	}
	return all, nil
}

func (m *Memory) detail(v contacts.Viewer, owner member.ID) contacts.Detail {
	d := contacts.Detail{Standing: m.standing(v, owner)}
	u, isMember := m.users[owner]
	if !isMember {
		return d
	}
	d.IsMember, d.Username, d.LastUpload = true, u.name, u.lastUpload
	d.Blocks, d.Blocked = m.blocks[contacts.Pair{User: owner, Contact: v.ID}], m.blocks[contacts.Pair{User: v.ID, Contact: owner}]
	d.Friend, d.Family = m.contacts[owner][v.ID].Friend, m.contacts[owner][v.ID].Family
	for _, p := range m.photos[owner] {
		isHidden := !d.IsContact || !m.maySee(v, owner, p)
		if p.Title = ""; isHidden && (d.Hidden == nil || p.Newer(d.Hidden.Photo)) {
			d.Hidden = &contacts.HiddenPhoto{Photo: p.Photo, Visibility: p.visibility}
		}
	}
	return d
}

// Walk is [contacts.MySQL.Walk].
func (m *Memory) Walk(ctx context.Context, v contacts.Viewer, limit int) (walked contacts.Walked, err error) {
	defer m.lock()()
	if err := m.missing(ctx, v.ID); err != nil {
		return walked, err
	}
	var best contacts.Standing
	for id := range m.contacts[v.ID] {
		if m.users[id].lastUpload > 0 {
			walked.Indexable, walked.Trace.LookedAt = true, walked.Trace.LookedAt+1
		}
		if s := m.standing(v, id); s.Newest != nil && (best.Newest == nil || s.Newest.Newer(*best.Newest)) {
			best = s
		}
	}
	walked.Album = m.album(v, best.Owner, limit)
	return walked, nil
}

func (m *Memory) album(v contacts.Viewer, owner member.ID, limit int) contacts.Album {
	photos := first(m.visible(v, owner), limit)
	if len(photos) == 0 {
		return contacts.Album{}
	}
	return contacts.Album{Contact: &contacts.Profile{ID: owner, Username: m.users[owner].name}, Photos: photos}
}

func (m *Memory) standing(v contacts.Viewer, owner member.ID) contacts.Standing {
	s := contacts.Standing{Owner: owner, IsContact: m.isContact(v, owner)}
	for _, p := range first(m.visible(v, owner), 1) {
		s.Newest = &contacts.Photo{ID: p.ID, DateUpload: p.DateUpload}
	}
	return s
}

// visible returns all photos of a contact that v may see, newest first.
func (m *Memory) visible(v contacts.Viewer, owner member.ID) (all []contacts.Photo) {
	for _, p := range m.photos[owner] {
		if m.isContact(v, owner) && m.maySee(v, owner, p) {
			all = append(all, p.Photo)
		}
	}
	slices.SortFunc(all, func(a, b contacts.Photo) int {
		return cmp.Or(cmp.Compare(b.DateUpload, a.DateUpload), cmp.Compare(b.ID, a.ID))
	})
	return all
}

// isContact reports whether v calls owner a contact, and both exist.
func (m *Memory) isContact(v contacts.Viewer, owner member.ID) bool {
	_, viewerExists := m.users[v.ID]
	_, ownerExists := m.users[owner]
	return viewerExists && ownerExists && m.contacts[v.ID][owner].Contact
}

// maySee is the site's privacy.
func (m *Memory) maySee(v contacts.Viewer, owner member.ID, p photo) bool {
	granted := m.contacts[owner][v.ID]
	granted.Follows = m.contacts[v.ID][owner].Contact
	isBlocked := m.blocks[contacts.Pair{User: owner, Contact: v.ID}] || m.blocks[contacts.Pair{User: v.ID, Contact: owner}]
	return !isBlocked && p.visibility.ShownTo(granted)
}

// Broadcasts is [contacts.MySQL.Broadcasts].
func (m *Memory) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error) {
	defer m.lock()()
	return lookUp(ids, func(id member.ID) (b contacts.Broadcast, isBroadcast bool) {
		if m.broadcasts[id] != nil {
			return *m.broadcasts[id], true
		}
		return b, false
	}), ctx.Err()
}

// AddBroadcast is [contacts.MySQL.AddBroadcast].
func (m *Memory) AddBroadcast(ctx context.Context, id member.ID, named bool) error {
	defer m.lock()()
	switch b := m.broadcasts[id]; {
	case m.missing(ctx, id) != nil && b == nil:
		return m.missing(ctx, id)
	case b == nil && len(m.broadcasts) >= contacts.MaxBroadcasts:
		return contacts.ErrTooManyBroadcasts
	case b == nil:
		m.broadcasts[id] = &contacts.Broadcast{ID: id, LastUpload: m.users[id].lastUpload, Named: named}
	case named:
		b.Leaving, b.Named = 0, true
	}
	return ctx.Err()
}

// RaiseBroadcast is [contacts.MySQL.RaiseBroadcast].
func (m *Memory) RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error {
	defer m.lock()()
	if b := m.broadcasts[id]; b != nil {
		b.LastUpload = max(b.LastUpload, lastUpload)
	}
	return ctx.Err()
}

// LeaveBroadcast is [contacts.MySQL.LeaveBroadcast].
func (m *Memory) LeaveBroadcast(ctx context.Context, id member.ID) (contacts.Broadcast, error) {
	defer m.lock()()
	b := m.broadcasts[id]
	if b == nil {
		return contacts.Broadcast{}, contacts.ErrNoBroadcast
	}
	if b.Leaving == 0 {
		m.leavings++
		b.Leaving = m.leavings
	}
	return *b, ctx.Err()
}

// DeleteBroadcast is [contacts.MySQL.DeleteBroadcast].
func (m *Memory) DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error {
	defer m.lock()()
	if b := m.broadcasts[id]; b != nil && leaving != 0 && b.Leaving == leaving {
		delete(m.broadcasts, id)
	}
	return ctx.Err()
}

// AddMember adds a member that never uploaded, or gives a member a new name.
func (m *Memory) AddMember(id member.ID, username string) {
	defer m.lock()()
	m.users[id] = user{username, m.users[id].lastUpload}
}

// DeleteMember removes a member with its contacts, its photos, the blocks by it and of it, and the rows of its
// followers. It returns the followers, ascending.
func (m *Memory) DeleteMember(id member.ID) (followers []member.ID) {
	defer m.lock()()
	followers = m.followers(id)
	for _, follower := range followers {
		delete(m.contacts[follower], id)
	}
	maps.DeleteFunc(m.blocks, func(p contacts.Pair, _ bool) bool { return p.User == id || p.Contact == id })
	delete(m.users, id)
	delete(m.contacts, id)
	delete(m.photos, id)
	return followers
}

// ReplaceMember gives a member another last upload, also an earlier upload, as when it is deleted and inserted again in
// a transaction. It returns its followers, ascending.
func (m *Memory) ReplaceMember(id member.ID, lastUpload uint64) (followers []member.ID) {
	defer m.lock()()
	m.users[id] = user{m.users[id].name, lastUpload}
	return m.followers(id)
}

// SetContact makes contact a contact of user, with the grants of user, or changes the grants. Like the tables, it takes
// any ids.
func (m *Memory) SetContact(user, contact member.ID, friend, family bool) {
	defer m.lock()()
	if m.contacts[user] == nil {
		m.contacts[user] = map[member.ID]contacts.Granted{}
	}
	m.contacts[user][contact] = contacts.Granted{Contact: true, Friend: friend, Family: family}
}

// RemoveContact makes contact no contact of user any more, if it was.
func (m *Memory) RemoveContact(user, contact member.ID) {
	defer m.lock()()
	delete(m.contacts[user], contact)
}

// Block hides everything of the two from each other.
func (m *Memory) Block(user, blocked member.ID) {
	defer m.lock()()
	m.blocks[contacts.Pair{User: user, Contact: blocked}] = true
}

// Unblock undoes [Memory.Block].
func (m *Memory) Unblock(user, blocked member.ID) {
	defer m.lock()()
	delete(m.blocks, contacts.Pair{User: user, Contact: blocked})
}

// AddPhoto adds a photo, uploaded at date in unix seconds, and returns its id: the given id, new so far, or with 0 the
// next above all so far. Setting the owner's last upload is left to the caller, see [Memory.SetLastUpload].
func (m *Memory) AddPhoto(id uint64, owner member.ID, title string, visibility contacts.Visibility, date uint64) uint64 {
	defer m.lock()()
	id = cmp.Or(id, m.lastPhoto+1)
	m.lastPhoto = max(m.lastPhoto, id)
	if m.photos[owner] == nil {
		m.photos[owner] = map[uint64]photo{}
	}
	m.photos[owner][id] = photo{contacts.Photo{ID: id, Title: title, DateUpload: date}, visibility}
	return id
}

// OwnerOf returns the owner of a photo, with its visibility and date, if it exists.
func (m *Memory) OwnerOf(photoID uint64) (owner member.ID, visibility contacts.Visibility, date uint64, exists bool) {
	defer m.lock()()
	for owner, photos := range m.photos {
		if p, exists := photos[photoID]; exists {
			return owner, p.visibility, p.DateUpload, true
		}
	}
	return 0, "", 0, false
}

// SetVisibility changes the visibility of a photo, if it exists. Setting the owner's last upload is left to the caller.
func (m *Memory) SetVisibility(photoID uint64, visibility contacts.Visibility) {
	defer m.lock()()
	for _, photos := range m.photos {
		if p, exists := photos[photoID]; exists {
			photos[photoID] = photo{p.Photo, visibility}
		}
	}
}

// DeletePhoto removes a photo, if it exists. The owner's last upload stays.
func (m *Memory) DeletePhoto(photoID uint64) {
	defer m.lock()()
	for _, photos := range m.photos {
		delete(photos, photoID)
	}
}

// SetLastUpload raises the last upload of a member to date, in unix seconds, if it exists and date is later.
func (m *Memory) SetLastUpload(id member.ID, date uint64) {
	defer m.lock()()
	if u, exists := m.users[id]; exists {
		m.users[id] = user{u.name, max(u.lastUpload, date)}
	}
}
