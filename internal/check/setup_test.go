package check

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/indextest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// settings are the same in all tests: small sets show all there is to see.
func settings(t testing.TB) index.Settings {
	t.Helper()
	s, err := index.NewSettings(5, 20, 0) // at most 6, at least 5
	must(t, err)
	return s
}

// sets is an index that calls a function of the test before each look.
type sets struct {
	*indextest.Memory
	mu    sync.Mutex // guards looks: sets are built side by side
	looks int
	// before is called before each look, counted from 1; nil: nothing.
	before func(look int)
}

func (s *sets) Look(ctx context.Context, users []member.ID) []index.Set {
	s.mu.Lock()
	s.looks++
	look := s.looks
	s.mu.Unlock()
	if s.before != nil {
		s.before(look)
	}
	return s.Memory.Look(ctx, users)
}

// bench is an auditor over servers in memory. Nobody works on the tasks.
type bench struct {
	*Checker
	t     testing.TB
	index *sets
	store *contactstest.Memory
	queue *queuetest.Memory

	reader *recent.Reader // without hints
}

// viewer is the member of most tests. Its contacts are 11 to 20, who uploaded at
// 110 to 200.
const viewer member.ID = 1

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		t:     t,
		index: &sets{Memory: indextest.NewMemory(settings(t))}, store: contactstest.NewMemory(),
	}
	b.queue = queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
	b.store.AddMember(viewer, "viewer")
	for id := member.ID(11); id <= 20; id++ {
		b.store.AddMember(id, "member "+id.String())
		b.store.SetContact(viewer, id, false, false)
		b.upload(id, 10*uint64(id))
	}
	b.reader = recent.NewReader(b.index, b.store, noHints{}, recent.Options{Min: settings(t).Min})
	b.Checker = &Checker{Sets: b.index, Truth: b.store, Tasks: b.queue, Read: b.reader.Read, pause: time.Microsecond}
	b.refill(t, viewer)
	return b
}

type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// upload is an upload without a task.
func (b *bench) upload(owner member.ID, date uint64) {
	b.store.SetLastUpload(owner, date)
	b.store.AddPhoto(0, owner, "a photo", contacts.Public, date)
}

// refill does the work of a refill's task.
func (b *bench) refill(t testing.TB, users ...member.ID) {
	t.Helper()
	h := &tasks.RefillHandler{Index: b.index.Memory, Store: b.store}
	batch := make([]queue.Task, len(users))
	for i, user := range users {
		batch[i] = queue.Task{Kind: tasks.Refill, Key: uint64(user)}
	}
	for _, err := range queuetest.Errors(h.Handle(context.WithoutCancel(t.Context()), batch)) {
		must(t, err)
	}
}

func (b *bench) enqueue(t testing.TB, batch ...queue.New) {
	t.Helper()
	_, err := b.queue.Enqueue(t.Context(), batch)
	must(t, err)
}

func (b *bench) check(t testing.TB) Report {
	t.Helper()
	r, err := b.Check(t.Context(), []member.ID{viewer})
	must(t, err)
	return r
}

// found compares the causes and classes in a report with the expectation.
func found(t testing.TB, r Report, want ...string) {
	t.Helper()
	var got []string
	for _, f := range r.Findings {
		got = append(got, string(f.Weight)+" "+string(f.Cause))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

var eventually = servertest.Eventually
