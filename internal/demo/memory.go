package demo

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

const (
	maxEvents   = 12
	maxUploads  = 60
	maxNotified = 60
	maxTimes    = 15 // for each viewer
	maxViewers  = 50
)

// event is something that happened on the made-up site.
type event struct {
	unix   uint64
	kind   string    // "upload", "add", "remove", "privacy", "block", "wipe", "switch"
	member member.ID // that did it; 0: none
	you    bool      // it was asked for on the page
	text   string
}

// upload is a photo of which the traffic may change the visibility.
type upload struct {
	id         uint64
	owner      member.ID
	title      string
	visibility contacts.Visibility
}

// memory is what the traffic draws from and the page shows without asking the database.
type memory struct {
	world     *world.World
	celebrity member.ID // the member with the most followers at the start
	followers int       // of it

	mu       sync.Mutex // guards all below
	contacts map[member.ID][]member.ID
	events   []event    // the latest, oldest first
	uploads  []upload   // the latest of the traffic, oldest first
	notified []notified // the latest, oldest first
	times    map[member.ID]*times
	watched  member.ID // the viewer of the latest page; 0: none yet
}

// times are those of a viewer's latest comparisons, of answers from one source.
type times struct {
	source recent.Source
	took   []time.Duration
	plain  [][]time.Duration // by way
}

func newMemory(w *world.World) *memory {
	m := &memory{world: w, contacts: map[member.ID][]member.ID{}, times: map[member.ID]*times{}}
	followers := make([]int, len(w.Members)+1)
	for _, row := range w.Contacts {
		m.contacts[row.User] = append(m.contacts[row.User], row.Contact)
		followers[row.Contact]++
		if followers[row.Contact] > m.followers {
			m.celebrity, m.followers = row.Contact, followers[row.Contact]
		}
	}
	return m
}

// name returns a member's username, or its id if it is not of the world.
func (m *memory) name(id member.ID) string {
	if name := m.world.Username(id); name != "" {
		return name
	}
	return "member " + id.String()
}

func (m *memory) contactCount(id member.ID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.contacts[id])
}

// contactOf draws one of the member's contacts other than except; 0: there is none.
func (m *memory) contactOf(dice *rand.Rand, id, except member.ID) member.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.contacts[id]
	if len(all) == 0 {
		return 0
	}
	i := dice.IntN(len(all))
	if all[i] == except {
		i = (i + 1) % len(all)
	}
	if all[i] == except { // it is the only one
		return 0
	}
	return all[i]
}

func (m *memory) hasContact(id, contact member.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.contacts[id], contact)
}

func (m *memory) addContact(id, contact member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contacts[id] = append(m.contacts[id], contact)
}

func (m *memory) removeContact(id, contact member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contacts[id] = slices.DeleteFunc(m.contacts[id], func(c member.ID) bool { return c == contact })
}

// anyMember draws a member, all but the quiet ones being equal.
func (m *memory) anyMember(dice *rand.Rand) member.ID {
	for {
		if id := member.ID(dice.IntN(len(m.world.Members)) + 1); !m.world.IsQuiet(id) {
			return id
		}
	}
}

// uploader draws a member that is not quiet, weighted by its photos at the start.
func (m *memory) uploader(dice *rand.Rand) member.ID {
	for {
		if owner := m.world.Photos[dice.IntN(len(m.world.Photos))].Owner; !m.world.IsQuiet(owner) {
			return owner
		}
	}
}

// star returns the watched viewer, or draws one of the featured if none is watched.
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

// addEvent keeps an event of now.
func (m *memory) addEvent(e event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.unix = uint64(time.Now().Unix())
	m.events = latest(m.events, e, maxEvents)
}

// latestEvents returns the latest events, newest first.
func (m *memory) latestEvents() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.events)
	slices.Reverse(out)
	return out
}

func (m *memory) addUpload(u upload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uploads = latest(m.uploads, u, maxUploads)
}

// anyUpload draws one of the latest uploads.
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
	for i := range m.notified {
		if m.notified[i].id == id {
			m.notified[i].visibility = v
		}
	}
}

func (m *memory) addNotified(viewer member.ID, u upload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notified = latest(m.notified, notified{upload: u, viewer: viewer, unix: uint64(time.Now().Unix())}, maxNotified)
}

// setNumber keeps the number of the event about a photo.
func (m *memory) setNumber(photo, number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.notified {
		if m.notified[i].id == photo {
			m.notified[i].number = number
		}
	}
}

// notifiedOf returns the latest uploads that a viewer was to hear of, newest first.
func (m *memory) notifiedOf(viewer member.ID) (list []notified) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range slices.Backward(m.notified) {
		if n.viewer == viewer && len(list) < notifiedShown {
			list = append(list, n)
		}
	}
	return list
}

// addTimes adds the times of a comparison, one for each plain way, and returns the medians
// of the viewer's latest, since its answers come from this source.
func (m *memory) addTimes(viewer member.ID, source recent.Source, took time.Duration, plain []time.Duration) (usual time.Duration, plainUsual []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.times[viewer]
	if t == nil || t.source != source {
		if len(m.times) >= maxViewers {
			clear(m.times)
		}
		t = &times{source: source, plain: make([][]time.Duration, len(plain))}
		m.times[viewer] = t
	}
	t.took = latest(t.took, took, maxTimes)
	for i, way := range plain {
		t.plain[i] = latest(t.plain[i], way, maxTimes)
		plainUsual = append(plainUsual, median(t.plain[i]))
	}
	return median(t.took), plainUsual
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
