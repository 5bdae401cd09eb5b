package demo

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
)

// How much is remembered.
const (
	eventsKept  = 12
	uploadsKept = 60
	timesKept   = 15 // for each viewer
	viewersKept = 50
)

// Event is something that happened on the made-up site, in words.
type Event struct {
	At   time.Time
	Kind string    // "upload", "add", "remove", "privacy", "block", "wipe"
	Who  member.ID // the member who did it; 0: none
	You  bool      // it was asked for on the page
	Text string
}

// upload is a photo of which the traffic may change the visibility.
type upload struct {
	id         uint64
	owner      member.ID
	title      string
	visibility contacts.Visibility
}

// memory is what the demo remembers of the site, so that the traffic finds members to
// act and the page has something to show without asking the database.
type memory struct {
	world *world.World

	mu       sync.Mutex // guards all below
	contacts map[member.ID][]member.ID
	events   []Event  // the latest ones, oldest first
	uploads  []upload // the latest ones
	times    map[member.ID]*times
	watched  member.ID // the viewer whose widget was looked at last; 0: none yet
}

// times are those of a viewer's latest comparisons.
type times struct{ took, plain []time.Duration }

func newMemory(w *world.World) *memory {
	m := &memory{world: w, contacts: map[member.ID][]member.ID{}, times: map[member.ID]*times{}}
	for _, row := range w.Contacts {
		m.contacts[row.User] = append(m.contacts[row.User], row.Contact)
	}
	return m
}

// name returns a member's username, or the id for one who is not of the world.
func (m *memory) name(id member.ID) string {
	if name := m.world.Username(id); name != "" {
		return name
	}
	return "member " + id.String()
}

// contactCount returns how many contacts the member has.
func (m *memory) contactCount(user member.ID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.contacts[user])
}

// contactOf draws one of the member's contacts other than except; 0: there is none.
func (m *memory) contactOf(dice *rand.Rand, user, except member.ID) member.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.contacts[user]
	if len(all) == 0 {
		return 0
	}
	for i, start := 0, dice.IntN(len(all)); i < len(all); i++ {
		if id := all[(start+i)%len(all)]; id != except {
			return id
		}
	}
	return 0
}

func (m *memory) hasContact(user, contact member.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.contacts[user], contact)
}

func (m *memory) addContact(user, contact member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.contacts[user], contact) {
		m.contacts[user] = append(m.contacts[user], contact)
	}
}

func (m *memory) removeContact(user, contact member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contacts[user] = slices.DeleteFunc(m.contacts[user], func(id member.ID) bool { return id == contact })
}

// anyone draws a member, all being equal.
func (m *memory) anyone(dice *rand.Rand) member.ID {
	return member.ID(dice.IntN(len(m.world.Members)) + 1)
}

// uploader draws a member by how many photos they had at the start.
func (m *memory) uploader(dice *rand.Rand) member.ID {
	return m.world.Photos[dice.IntN(len(m.world.Photos))].Owner
}

// star draws a viewer around whom something is to happen: the one that is watched, or
// else one of the featured.
func (m *memory) star(dice *rand.Rand) member.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched != 0 {
		return m.watched
	}
	return m.world.Featured[dice.IntN(len(m.world.Featured))]
}

func (m *memory) watch(viewer member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = viewer
}

func (m *memory) addEvent(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = latest(m.events, e, eventsKept)
}

// latestEvents returns the events that are kept, newest first.
func (m *memory) latestEvents() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.events)
	slices.Reverse(out)
	return out
}

func (m *memory) addUpload(u upload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uploads = latest(m.uploads, u, uploadsKept)
}

// anyUpload draws one of the uploads that are kept.
func (m *memory) anyUpload(dice *rand.Rand) (upload, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.uploads) == 0 {
		return upload{}, false
	}
	return m.uploads[dice.IntN(len(m.uploads))], true
}

func (m *memory) setVisibility(id uint64, v contacts.Visibility) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.uploads {
		if m.uploads[i].id == id {
			m.uploads[i].visibility = v
		}
	}
}

// addTimes keeps the times of one comparison and returns the medians of the viewer's
// latest, so that one slow answer does not make the page's figures jump.
func (m *memory) addTimes(viewer member.ID, took, plain time.Duration) (usual, plainUsual time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.times[viewer] == nil {
		if len(m.times) >= viewersKept {
			clear(m.times)
		}
		m.times[viewer] = &times{}
	}
	t := m.times[viewer]
	t.took, t.plain = latest(t.took, took, timesKept), latest(t.plain, plain, timesKept)
	return median(t.took), median(t.plain)
}

// latest appends to a list that keeps its last n elements.
func latest[T any](list []T, last T, n int) []T {
	list = append(list, last)
	return slices.Delete(list, 0, max(0, len(list)-n))
}

// median returns the middle of a list that is not empty.
func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
