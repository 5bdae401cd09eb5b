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
	maxEvents  = 12
	maxUploads = 60
	maxTimes   = 15 // for each viewer
	maxViewers = 50
)

// event is something that happened on the made-up site.
type event struct {
	unix   uint64
	kind   string    // "upload", "contact", "privacy" or "server"
	member member.ID // that did it; 0: none
	you    bool      // it was asked for on the page
	text   string
}

// upload is a photo whose visibility the traffic may change.
type upload struct {
	id         uint64
	owner      member.ID
	title      string
	visibility contacts.Visibility
}

// town has the members, contacts and events that the traffic draws from, and that the page shows
// without a question to the database.
type town struct {
	world *world.World

	mu       sync.Mutex // guards all below
	contacts map[member.ID][]member.ID
	events   []event  // the latest, oldest first
	uploads  []upload // the latest of the traffic, oldest first
	times    map[member.ID]*times
	watched  member.ID // the viewer of the latest page; 0: none yet
}

// times are the times of a viewer's latest comparisons, of answers from the same source.
type times struct {
	source recent.Source
	took   []time.Duration
	plain  [][]time.Duration // by way
}

func newTown(w *world.World) *town {
	t := &town{world: w, contacts: map[member.ID][]member.ID{}, times: map[member.ID]*times{}}
	for _, row := range w.Contacts {
		t.contacts[row.User] = append(t.contacts[row.User], row.Contact)
	}
	return t
}

// name returns a member's username, or its id if it is not of the world.
func (t *town) name(id member.ID) string {
	if name := t.world.Username(id); name != "" {
		return name
	}
	return "member " + id.String()
}

func (t *town) contactCount(id member.ID) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.contacts[id])
}

// contactOf draws a contact of the member, but not except; 0: there is none.
func (t *town) contactOf(dice *rand.Rand, id, except member.ID) member.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.contacts[id]
	if len(all) == 0 {
		return 0
	}
	i := dice.IntN(len(all))
	if all[i] == except {
		i = (i + 1) % len(all)
	}
	if all[i] == except { // it is the only contact
		return 0
	}
	return all[i]
}

func (t *town) hasContact(id, contact member.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.contacts[id], contact)
}

// setContact makes contact a contact of id, or none any more.
func (t *town) setContact(id, contact member.ID, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contacts[id] = slices.DeleteFunc(t.contacts[id], func(c member.ID) bool { return c == contact })
	if is {
		t.contacts[id] = append(t.contacts[id], contact)
	}
}

// anyMember draws a member, all but the quiet members being equal.
func (t *town) anyMember(dice *rand.Rand) member.ID {
	for {
		if id := member.ID(dice.IntN(len(t.world.Members)) + 1); !t.world.IsQuiet(id) {
			return id
		}
	}
}

// uploader draws a member that is not quiet, weighted by its photos at the start.
func (t *town) uploader(dice *rand.Rand) member.ID {
	for {
		if owner := t.world.Photos[dice.IntN(len(t.world.Photos))].Owner; !t.world.IsQuiet(owner) {
			return owner
		}
	}
}

// star returns the watched viewer, or draws a featured viewer if none is watched.
func (t *town) star(dice *rand.Rand) member.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched != 0 {
		return t.watched
	}
	return t.world.Featured[dice.IntN(len(t.world.Featured))]
}

func (t *town) watch(viewer member.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = viewer
}

// addEvent keeps an event of now.
func (t *town) addEvent(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.unix = uint64(time.Now().Unix())
	t.events = latest(t.events, e, maxEvents)
}

// latestEvents returns the latest events, newest first.
func (t *town) latestEvents() []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.events)
	slices.Reverse(list)
	return list
}

func (t *town) addUpload(u upload) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uploads = latest(t.uploads, u, maxUploads)
}

// anyUpload draws an upload from the latest.
func (t *town) anyUpload(dice *rand.Rand) (upload, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.uploads) == 0 {
		return upload{}, false
	}
	return t.uploads[dice.IntN(len(t.uploads))], true
}

func (t *town) setVisibility(id uint64, v contacts.Visibility) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.uploads {
		if t.uploads[i].id == id {
			t.uploads[i].visibility = v
		}
	}
}

// addTimes adds the times of a comparison, a time for each plain way. It returns the medians of
// the viewer's latest comparisons, since its answers come from this source.
func (t *town) addTimes(viewer member.ID, source recent.Source, took time.Duration, plain []time.Duration) (usual time.Duration, plainUsual []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.times[viewer]
	if of == nil || of.source != source {
		if len(t.times) >= maxViewers {
			clear(t.times)
		}
		of = &times{source: source, plain: make([][]time.Duration, len(plain))}
		t.times[viewer] = of
	}
	of.took = latest(of.took, took, maxTimes)
	for i, way := range plain {
		of.plain[i] = latest(of.plain[i], way, maxTimes)
		plainUsual = append(plainUsual, median(of.plain[i]))
	}
	return median(of.took), plainUsual
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
