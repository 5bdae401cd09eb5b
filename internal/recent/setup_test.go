package recent_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

type contactID = member.ID

// me is the viewer of the tests; the contacts are 11, 12, ….
var me = contacts.Viewer{ID: 1}

// fakeIndex answers with a fixed set or error, unless ask is set.
type fakeIndex struct {
	entries []index.Entry
	err     error
	ask     func(ctx context.Context) ([]index.Entry, error)
}

func (f *fakeIndex) Candidates(ctx context.Context, _ member.ID) ([]index.Entry, error) {
	if f.ask != nil {
		return f.ask(ctx)
	}
	return f.entries, f.err
}

// countingStore is the specification, with its calls counted and a hook before
// each of them.
type countingStore struct {
	*contactstest.Memory
	mu     sync.Mutex
	calls  []string
	before func(ctx context.Context, call string) error
}

func (s *countingStore) called(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if s.before != nil {
		return s.before(ctx, call)
	}
	return nil
}

func (s *countingStore) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	if err := s.called(ctx, fmt.Sprintf("look at %d", owner)); err != nil {
		return contacts.Look{}, err
	}
	return s.Memory.Look(ctx, v, owner, limit, bound)
}

func (s *countingStore) Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error) {
	if err := s.called(ctx, fmt.Sprintf("compare %d", len(owners))); err != nil {
		return contacts.Comparison{}, err
	}
	return s.Memory.Compare(ctx, v, owners, bound)
}

func (s *countingStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	if err := s.called(ctx, "walk"); err != nil {
		return contacts.Walked{}, err
	}
	return s.Memory.Walk(ctx, v, limit)
}

func (s *countingStore) Details(ctx context.Context, v contacts.Viewer, owners []member.ID) ([]contacts.Detail, error) {
	if err := s.called(ctx, fmt.Sprintf("details of %d", len(owners))); err != nil {
		return nil, err
	}
	return s.Memory.Details(ctx, v, owners)
}

// recordedHints remembers the hints.
type recordedHints struct {
	mu   sync.Mutex
	list []string
}

func (h *recordedHints) note(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, s)
}
func (h *recordedHints) Refill(user member.ID) { h.note(fmt.Sprintf("refill %d", user)) }
func (h *recordedHints) LookAgain(user, contact member.ID) {
	h.note(fmt.Sprintf("look again at %d, %d", user, contact))
}

// bench is a reader with min 3 over a small world.
type bench struct {
	*recent.Reader
	index *fakeIndex
	store *countingStore
	hints *recordedHints
}

func newBench(o recent.Options) bench {
	b := bench{index: &fakeIndex{}, store: &countingStore{Memory: contactstest.NewMemory()}, hints: &recordedHints{}}
	b.store.AddMember(me.ID, "me")
	o.Min = 3
	b.Reader = recent.NewReader(b.index, b.store, b.hints, o)
	return b
}

// withoutWalks returns a limiter of two places, one of which has the only walk.
func withoutWalks(t *testing.T) *admit.Limiter {
	t.Helper()
	limiter := admit.New(2)
	place, err := limiter.Enter(t.Context())
	if err != nil || !place.Walk() {
		t.Fatal("a read may not walk", err)
	}
	t.Cleanup(func() { place.Leave(false) })
	return limiter
}

// contact makes id a member whom me calls a contact, with one photo for each
// date; a negative date is a private photo. The index knows the last upload.
func (b bench) contact(id member.ID, dates ...int64) {
	b.store.AddMember(id, fmt.Sprintf("member %d", id))
	b.store.SetContact(me.ID, id, false, false)
	last := uint64(0)
	for i, d := range dates {
		visibility, date := contacts.Public, uint64(max(d, -d))
		if d < 0 {
			visibility = contacts.Private
		}
		b.store.AddPhoto(uint64(id)*100+uint64(i), id, "photo", visibility, date)
		last = max(last, date)
	}
	b.store.SetLastUpload(id, last)
	b.index.entries = append(b.index.entries, index.Entry{Contact: id, Score: last})
	slices.SortFunc(b.index.entries, func(x, y index.Entry) int { return int(y.Score) - int(x.Score) })
}

// read expects the answer to be contact's (0: nothing to show), from source, and
// equal to the definition.
func (b bench) read(t *testing.T, contact member.ID, source recent.Source) recent.Answer {
	t.Helper()
	got, err := b.Read(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.store.Memory.Walk(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	if id := shown(got.Album); id != contact || shown(want.Album) != contact {
		t.Fatalf("shown %d, want %d; by definition %d", id, contact, shown(want.Album))
	}
	if !slices.Equal(got.Photos, want.Photos) {
		t.Fatalf("photos %v, by definition %v", got.Photos, want.Photos)
	}
	if got.Source != source {
		t.Fatalf("source %s (%s), want %s", got.Source, got.Trace.WalkReason, source)
	}
	return got
}

func shown(a contacts.Album) member.ID {
	if a.Contact == nil {
		return 0
	}
	return a.Contact.ID
}

func (b bench) called(t *testing.T, want ...string) {
	t.Helper()
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if !slices.Equal(b.store.calls, want) {
		t.Errorf("the store was asked for %q, want %q", b.store.calls, want)
	}
}

func (b bench) hinted(t *testing.T, want ...string) {
	t.Helper()
	b.hints.mu.Lock()
	defer b.hints.mu.Unlock()
	if !slices.Equal(b.hints.list, want) {
		t.Errorf("hints %q, want %q", b.hints.list, want)
	}
}
