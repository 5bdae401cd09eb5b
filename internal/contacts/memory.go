package contacts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/activityd/activityd/internal/member"
)

// Memory keeps a made-up site in memory and answers as [MySQL] does. Its answers are the
// plainest code, and so the specification; nothing is precomputed. Each change and each
// answer is atomic. The queries fail only with the error of a context that has ended, or
// with [ErrNoMember].
type Memory struct {
	mu         sync.RWMutex
	users      map[member.ID]user
	contacts   map[member.ID]map[member.ID]Granted  // by user, by contact
	followers  map[member.ID]map[member.ID]struct{} // by contact
	blocks     map[Pair]struct{}                    // User blocks Contact
	photos     map[uint64]photo
	owned      map[member.ID]map[uint64]struct{} // photo ids by owner
	lastPhoto  uint64                            // the highest photo id ever used
	broadcasts map[member.ID]Broadcast
	leavings   int64 // how many members were told to cease, for Broadcast.Leaving
}

type user struct {
	name       string
	lastUpload uint64
}

type photo struct {
	Photo
	owner      member.ID
	visibility Visibility
}

// NewMemory returns a site without members.
func NewMemory() *Memory {
	return &Memory{
		users:      map[member.ID]user{},
		contacts:   map[member.ID]map[member.ID]Granted{},
		followers:  map[member.ID]map[member.ID]struct{}{},
		blocks:     map[Pair]struct{}{},
		photos:     map[uint64]photo{},
		owned:      map[member.ID]map[uint64]struct{}{},
		broadcasts: map[member.ID]Broadcast{},
	}
}

// read answers a question by ask, unless ctx has ended.
func read[T any](ctx context.Context, m *Memory, ask func() (T, error)) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, fmt.Errorf("asking the site in memory: %w", err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return ask()
}

// readMap asks about each of ids; ask reports whether the answer has it.
func readMap[K comparable, V any](ctx context.Context, m *Memory, ids []K, ask func(K) (V, bool)) (map[K]V, error) {
	return read(ctx, m, func() (map[K]V, error) {
		found := make(map[K]V)
		for _, id := range ids {
			if v, ok := ask(id); ok {
				found[id] = v
			}
		}
		return found, nil
	})
}

// readOf is read for a viewer that must exist.
func readOf[T any](ctx context.Context, m *Memory, v Viewer, ask func() T) (T, error) {
	return read(ctx, m, func() (answer T, err error) {
		if _, ok := m.users[v.ID]; !ok {
			return answer, noMember(v.ID)
		}
		return ask(), nil
	})
}

func (m *Memory) lock() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

// change makes a change, unless ctx has ended.
func (m *Memory) change(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("changing the site in memory: %w", err)
	}
	defer m.lock()()
	return do()
}

// Members is [MySQL.Members].
func (m *Memory) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	return read(ctx, m, func() ([]member.ID, error) {
		ids := slices.Sorted(maps.Keys(m.users))
		return first(slices.DeleteFunc(ids, func(id member.ID) bool { return id <= after }), limit), nil
	})
}

// CountMembers is [MySQL.CountMembers].
func (m *Memory) CountMembers(ctx context.Context, first, last member.ID) (int64, error) {
	return read(ctx, m, func() (n int64, _ error) {
		for id := range m.users {
			if id >= first && id <= last {
				n++
			}
		}
		return n, nil
	})
}

// NthMember is [MySQL.NthMember].
func (m *Memory) NthMember(ctx context.Context, after member.ID, n int64) (member.ID, error) {
	ids, err := m.Members(ctx, after, int(n))
	if err != nil || int64(len(ids)) < n {
		return 0, err
	}
	return ids[n-1], nil
}

// LastUploads is [MySQL.LastUploads].
func (m *Memory) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	return readMap(ctx, m, ids, func(id member.ID) (uint64, bool) {
		u, isMember := m.users[id]
		return u.lastUpload, isMember
	})
}

// Newest is [MySQL.Newest].
func (m *Memory) Newest(ctx context.Context, ids []member.ID) (map[member.ID]Newest, error) {
	return readMap(ctx, m, ids, func(id member.ID) (Newest, bool) {
		u, isMember := m.users[id]
		n := Newest{LastUpload: u.lastUpload}
		for photoID := range m.owned[id] {
			if p := m.photos[photoID]; p.visibility != Private {
				n.Photo = max(n.Photo, p.DateUpload)
			} else {
				n.Private = max(n.Private, p.DateUpload)
			}
		}
		return n, isMember
	})
}

// Relations is [MySQL.Relations].
func (m *Memory) Relations(ctx context.Context, pairs []Pair) (map[Pair]uint64, error) {
	return readMap(ctx, m, pairs, func(p Pair) (uint64, bool) {
		_, isContact := m.contacts[p.User][p.Contact]
		u, isMember := m.users[p.Contact]
		return u.lastUpload, isContact && isMember
	})
}

// TopContacts is [MySQL.TopContacts].
func (m *Memory) TopContacts(ctx context.Context, ids []member.ID, limit int) (map[member.ID][]Contact, error) {
	return readMap(ctx, m, ids, func(id member.ID) ([]Contact, bool) {
		var all []Contact
		for contact := range m.contacts[id] {
			if at := m.users[contact].lastUpload; at > 0 {
				all = append(all, Contact{ID: contact, LastUpload: at})
			}
		}
		SortByRecency(all)
		_, isMember := m.users[id]
		return first(all, limit), isMember && len(first(all, limit)) > 0
	})
}

// FollowerPages is [MySQL.FollowerPages].
func (m *Memory) FollowerPages(ctx context.Context, pages []FollowerPage, limit int) ([][]member.ID, error) {
	return read(ctx, m, func() ([][]member.ID, error) {
		found := make([][]member.ID, len(pages))
		for i, p := range pages {
			ids := slices.Sorted(maps.Keys(m.followers[p.Of]))
			found[i] = first(slices.DeleteFunc(ids, func(id member.ID) bool { return id <= p.After }), limit)
		}
		return found, nil
	})
}

// Look is [MySQL.Look].
func (m *Memory) Look(ctx context.Context, v Viewer, owner member.ID, limit int, bound uint64) (Look, error) {
	return read(ctx, m, func() (l Look, _ error) {
		l.Album = m.album(v, owner, limit)
		for _, b := range m.broadcasts {
			if b.LastUpload < bound {
				l.Below = max(l.Below, b.LastUpload)
			} else if _, isContact := m.contacts[v.ID][b.ID]; isContact {
				l.Above = append(l.Above, Contact{b.ID, b.LastUpload})
			}
		}
		SortByRecency(l.Above)
		l.Above = first(l.Above, 2)
		return l, nil
	})
}

// Compare is [MySQL.Compare].
func (m *Memory) Compare(ctx context.Context, v Viewer, owners []member.ID, bound uint64) (Comparison, error) {
	return readOf(ctx, m, v, func() Comparison {
		var uploads []Contact
		for _, b := range m.broadcasts {
			if _, isContact := m.contacts[v.ID][b.ID]; isContact && b.LastUpload > bound {
				uploads = append(uploads, Contact{b.ID, b.LastUpload})
			}
		}
		SortByRecency(uploads)
		return compared(owners, first(uploads, maxCompared+1), func(id member.ID) Standing { return m.standing(v, id) })
	})
}

// Broadcasts is [MySQL.Broadcasts].
func (m *Memory) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]Broadcast, error) {
	return readMap(ctx, m, ids, func(id member.ID) (Broadcast, bool) {
		b, ok := m.broadcasts[id]
		return b, ok
	})
}

// AddBroadcast is [MySQL.AddBroadcast].
func (m *Memory) AddBroadcast(ctx context.Context, id member.ID, named bool) error {
	return m.change(ctx, func() error {
		b, isBroadcast := m.broadcasts[id]
		u, isMember := m.users[id]
		switch {
		case isBroadcast && !named:
			return nil
		case isBroadcast:
			b.Leaving, b.Named = 0, true
		case !isMember:
			return noMember(id)
		case len(m.broadcasts) >= MaxBroadcasts:
			return ErrTooManyBroadcasts
		default:
			b = Broadcast{ID: id, LastUpload: u.lastUpload, Named: named}
		}
		m.broadcasts[id] = b
		return nil
	})
}

// RaiseBroadcast is [MySQL.RaiseBroadcast].
func (m *Memory) RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error {
	return m.change(ctx, func() error {
		if b, ok := m.broadcasts[id]; ok {
			b.LastUpload = max(b.LastUpload, lastUpload)
			m.broadcasts[id] = b
		}
		return nil
	})
}

// LeaveBroadcast is [MySQL.LeaveBroadcast].
func (m *Memory) LeaveBroadcast(ctx context.Context, id member.ID) (b Broadcast, err error) {
	err = m.change(ctx, func() error {
		b = m.broadcasts[id]
		if b.ID == 0 {
			return ErrNoBroadcast
		}
		if b.Leaving == 0 {
			m.leavings++
			b.Leaving = m.leavings
			m.broadcasts[id] = b
		}
		return nil
	})
	return b, err
}

// DeleteBroadcast is [MySQL.DeleteBroadcast].
func (m *Memory) DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error {
	return m.change(ctx, func() error {
		if leaving != 0 && m.broadcasts[id].Leaving == leaving {
			delete(m.broadcasts, id)
		}
		return nil
	})
}

// HasFollowers is [MySQL.HasFollowers].
func (m *Memory) HasFollowers(ctx context.Context, id member.ID, n int) (bool, error) {
	return read(ctx, m, func() (bool, error) { return len(m.followers[id]) >= n, nil })
}

// Details is [MySQL.Details].
func (m *Memory) Details(ctx context.Context, v Viewer, owners []member.ID) ([]Detail, error) {
	return readOf(ctx, m, v, func() (all []Detail) {
		for _, owner := range owners {
			all = append(all, m.detail(v, owner))
		}
		return all
	})
}

func (m *Memory) detail(v Viewer, owner member.ID) Detail {
	u, isMember := m.users[owner]
	if !isMember {
		return Detail{Standing: Standing{Owner: owner}}
	}
	granted := m.contacts[owner][v.ID]
	_, blocks := m.blocks[Pair{User: owner, Contact: v.ID}]
	_, blocked := m.blocks[Pair{User: v.ID, Contact: owner}]
	d := Detail{
		Standing: m.standing(v, owner),
		IsMember: true, Username: u.name, LastUpload: u.lastUpload,
		Blocks: blocks, Blocked: blocked, Friend: granted.Friend, Family: granted.Family,
	}
	for id := range m.owned[owner] {
		if p := m.photos[id]; !d.IsContact || !m.maySee(v, p) {
			d.hide(HiddenPhoto{Photo{ID: id, DateUpload: p.DateUpload}, p.visibility})
		}
	}
	return d
}

// Walk is [MySQL.Walk].
func (m *Memory) Walk(ctx context.Context, v Viewer, limit int) (Walked, error) {
	return readOf(ctx, m, v, func() (walked Walked) {
		var best Standing
		for id := range m.contacts[v.ID] {
			if m.users[id].lastUpload > 0 {
				walked.Indexable = true
				walked.Trace.LookedAt++
			}
			if s := m.standing(v, id); s.Newest != nil && (best.Newest == nil || s.Newest.Newer(*best.Newest)) {
				best = s
			}
		}
		walked.Album = m.album(v, best.Owner, limit)
		return walked
	})
}

func (m *Memory) album(v Viewer, owner member.ID, limit int) Album {
	photos := first(m.visible(v, owner), limit)
	if len(photos) == 0 {
		return Album{}
	}
	return Album{Contact: &Profile{ID: owner, Username: m.users[owner].name}, Photos: photos}
}

// visible returns all photos of owner that v may see, newest first.
func (m *Memory) visible(v Viewer, owner member.ID) []Photo {
	if !m.isContact(v, owner) {
		return nil
	}
	var all []Photo
	for id := range m.owned[owner] {
		if p := m.photos[id]; m.maySee(v, p) {
			all = append(all, p.Photo)
		}
	}
	slices.SortFunc(all, byDateDesc)
	return all
}

func (m *Memory) standing(v Viewer, owner member.ID) Standing {
	s := Standing{Owner: owner, IsContact: m.isContact(v, owner)}
	if visible := m.visible(v, owner); len(visible) > 0 {
		s.Newest = &Photo{ID: visible[0].ID, DateUpload: visible[0].DateUpload}
	}
	return s
}

// isContact reports whether v calls owner a contact, and both exist.
func (m *Memory) isContact(v Viewer, owner member.ID) bool {
	_, viewerExists := m.users[v.ID]
	_, ownerExists := m.users[owner]
	_, called := m.contacts[v.ID][owner]
	return viewerExists && ownerExists && called
}

// maySee is the site's privacy.
func (m *Memory) maySee(v Viewer, p photo) bool {
	_, hides := m.blocks[Pair{User: p.owner, Contact: v.ID}]
	_, blocked := m.blocks[Pair{User: v.ID, Contact: p.owner}]
	if hides || blocked {
		return false
	}
	granted := m.contacts[p.owner][v.ID]
	_, granted.Follows = m.contacts[v.ID][p.owner]
	return p.visibility.ShownTo(granted)
}

func first[T any](list []T, limit int) []T {
	if len(list) == 0 || limit <= 0 {
		return nil
	}
	return list[:min(limit, len(list))]
}

// AddMember adds a member that never uploaded, or gives a member a new name.
func (m *Memory) AddMember(id member.ID, username string) {
	defer m.lock()()
	u := m.users[id]
	u.name = username
	m.users[id] = u
}

// DeleteMember removes a member with its contacts, its photos, the blocks by it and
// of it, and the rows of its followers. It returns the followers, ascending.
func (m *Memory) DeleteMember(id member.ID) (followers []member.ID) {
	defer m.lock()()
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

// ReplaceMember gives a member another last upload, also an earlier upload, as when it is
// deleted and inserted again in a transaction. It returns its followers, ascending.
func (m *Memory) ReplaceMember(id member.ID, lastUpload uint64) (followers []member.ID) {
	defer m.lock()()
	u := m.users[id]
	u.lastUpload = lastUpload
	m.users[id] = u
	return slices.Sorted(maps.Keys(m.followers[id]))
}

// SetContact makes contact a contact of user, with the grants of user, or
// changes that grant. Like the tables, it takes any ids.
func (m *Memory) SetContact(user, contact member.ID, friend, family bool) {
	defer m.lock()()
	within(m.contacts, user)[contact] = Granted{Contact: true, Friend: friend, Family: family}
	within(m.followers, contact)[user] = struct{}{}
}

// RemoveContact makes contact no contact of user any more, if it was.
func (m *Memory) RemoveContact(user, contact member.ID) {
	defer m.lock()()
	m.removeContact(user, contact)
}

func (m *Memory) removeContact(user, contact member.ID) {
	delete(m.contacts[user], contact)
	delete(m.followers[contact], user)
}

// Block hides everything of the two from each other.
func (m *Memory) Block(user, blocked member.ID) {
	defer m.lock()()
	m.blocks[Pair{User: user, Contact: blocked}] = struct{}{}
}

// Unblock undoes [Memory.Block].
func (m *Memory) Unblock(user, blocked member.ID) {
	defer m.lock()()
	delete(m.blocks, Pair{User: user, Contact: blocked})
}

// AddPhoto adds a photo, uploaded at date in unix seconds, and returns its id:
// the given id, new so far, or with 0 the next above all so far. Setting
// the owner's last upload is left to the caller, see [Memory.SetLastUpload].
func (m *Memory) AddPhoto(id uint64, owner member.ID, title string, visibility Visibility, date uint64) uint64 {
	defer m.lock()()
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

// OwnerOf returns the owner of a photo, with its visibility and date, if it exists.
func (m *Memory) OwnerOf(photoID uint64) (owner member.ID, visibility Visibility, date uint64, exists bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, exists := m.photos[photoID]
	return p.owner, p.visibility, p.DateUpload, exists
}

// SetVisibility changes the visibility of a photo, if it exists. Setting the owner's last
// upload is left to the caller.
func (m *Memory) SetVisibility(photoID uint64, visibility Visibility) {
	defer m.lock()()
	if p, ok := m.photos[photoID]; ok {
		p.visibility = visibility
		m.photos[photoID] = p
	}
}

// DeletePhoto removes a photo, if it exists. The owner's last upload stays.
func (m *Memory) DeletePhoto(photoID uint64) {
	defer m.lock()()
	delete(m.owned[m.photos[photoID].owner], photoID)
	delete(m.photos, photoID)
}

// SetLastUpload raises the last upload of a member to date, in unix seconds, if it
// exists and date is later.
func (m *Memory) SetLastUpload(id member.ID, date uint64) {
	defer m.lock()()
	if u, ok := m.users[id]; ok {
		u.lastUpload = max(u.lastUpload, date)
		m.users[id] = u
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
