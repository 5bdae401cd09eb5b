package demo

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Event is something that happened on the made-up site, in words.
type Event struct {
	At   time.Time
	Kind string    // "upload", "add", "remove", "privacy", "block", "wipe"
	Who  member.ID // who did it; 0: nobody in particular
	You  bool      // it was asked for on the page
	Text string
}

// events keeps the latest events. The zero value is ready for use.
type events struct {
	mu  sync.Mutex
	all []Event // oldest first; guarded by mu
}

const eventsKept = 12

func (e *events) add(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == eventsKept {
		e.all = slices.Delete(e.all, 0, 1)
	}
	e.all = append(e.all, ev)
}

// latest returns the events that are kept, newest first.
func (e *events) latest() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := slices.Clone(e.all)
	slices.Reverse(out)
	return out
}

// upload is a photo as the demo remembers it, in order to change its mind.
type upload struct {
	id         uint64
	owner      member.ID
	title      string
	visibility contacts.Visibility
}

// uploads keeps the latest uploads. The zero value is ready for use.
type uploads struct {
	mu  sync.Mutex
	all []upload // guarded by mu
}

const uploadsKept = 60

func (u *uploads) add(one upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) == uploadsKept {
		u.all = slices.Delete(u.all, 0, 1)
	}
	u.all = append(u.all, one)
}

// any draws one of the uploads that are kept.
func (u *uploads) any(dice *rand.Rand) (upload, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) == 0 {
		return upload{}, false
	}
	return u.all[dice.IntN(len(u.all))], true
}

func (u *uploads) setVisibility(id uint64, v contacts.Visibility) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		if u.all[i].id == id {
			u.all[i].visibility = v
		}
	}
}

// watchers remembers whose widget somebody looked at just now. Something should
// happen there.
type watchers struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[member.ID]time.Time // guarded by mu
}

func (w *watchers) saw(viewer member.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[member.ID]time.Time{}
	}
	w.seen[viewer] = w.now()
}

// current returns the viewers of the last few seconds, by id.
func (w *watchers) current() []member.ID {
	const attention = 5 * time.Second
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []member.ID
	for viewer, at := range w.seen {
		if w.now().Sub(at) > attention {
			delete(w.seen, viewer)
			continue
		}
		all = append(all, viewer)
	}
	slices.Sort(all)
	return all
}
