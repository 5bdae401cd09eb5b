package recent_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

// TestPropertyTheViewerLearnsNothing: a viewer is shown the same in all worlds that look
// the same to it. They differ in everything else: the private photos and when they were
// uploaded, who blocks the viewer and who grants it friendship, who is in the set without being
// a contact, and whether there is a set at all.
func TestPropertyTheViewerLearnsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seen := drawSeen(t)
		first := seen.shown(t)
		for range 3 {
			if diff := gocmp.Diff(first, seen.shown(t)); diff != "" {
				t.Fatalf("two worlds that look the same have different answers:\n%s", diff)
			}
		}
	})
}

// seen is all that the viewer can see: the dates of each contact's visible photos.
type seen [][]uint64

func drawSeen(t *rapid.T) seen {
	var s seen
	for range rapid.IntRange(0, 14).Draw(t, "contacts") {
		s = append(s, rapid.SliceOfN(rapid.Uint64Range(1, 40), 0, 2).Draw(t, "visible"))
	}
	return s
}

// The sizes of the sets.
const leastSet, mostSet = 3, 4

// shown draws a world that looks like s, and returns the answer to the viewer.
func (s seen) shown(t *rapid.T) contacts.Album {
	store, scores := contactstest.NewMemory(), map[member.ID]uint64{}
	store.AddMember(me.ID, "me")
	for i, dates := range s {
		id := contactID(11 + i)
		store.SetContact(me.ID, id, rapid.Bool().Draw(t, "friend"), rapid.Bool().Draw(t, "family"))
		scores[id] = hide(t, store, id, dates)
	}
	ix := &fakeIndex{entries: set(scores)}
	if rapid.IntRange(0, 4).Draw(t, "no set") == 0 {
		ix.err = rapid.SampledFrom([]error{index.ErrMissing, index.ErrMalformed, index.ErrUnavailable, errors.New("x")}).Draw(t, "why")
	}
	if ghost := rapid.IntRange(0, 4).Draw(t, "ghost"); ghost > 0 && len(ix.entries) >= leastSet && len(ix.entries) < mostSet {
		ix.entries = slices.Insert(ix.entries, 0, index.Entry{Contact: 99, Score: ix.entries[0].Score + 1})
	}
	reader := recent.NewReader(ix, store, &recordedHints{}, recent.Options{Min: leastSet})
	a, err := reader.Read(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	return a.Album
}

// hide makes a member with the given visible photos and anything besides, and
// returns its last upload.
func hide(t *rapid.T, store *contactstest.Memory, id member.ID, visible []uint64) (last uint64) {
	store.AddMember(id, fmt.Sprintf("member %d", id))
	friend, family := rapid.Bool().Draw(t, "is friend"), rapid.Bool().Draw(t, "is family")
	calls := friend || family || rapid.Bool().Draw(t, "calls")
	if calls {
		store.SetContact(id, me.ID, friend, family)
	}
	granted := contacts.Granted{Contact: calls, Friend: friend, Family: family, Follows: true}
	blocks := len(visible) == 0 && rapid.Bool().Draw(t, "blocks")
	if blocks {
		store.Block(id, me.ID)
	}
	classes := func(want bool) (some []contacts.Visibility) {
		for _, v := range contacts.Classes() {
			if (v.ShownTo(granted) && !blocks) == want {
				some = append(some, v)
			}
		}
		return some
	}
	for i, date := range visible {
		store.AddPhoto(uint64(id)*100+uint64(i), id, "seen", rapid.SampledFrom(classes(true)).Draw(t, "class"), date)
		last = max(last, date)
	}
	for i, date := range rapid.SliceOfN(rapid.Uint64Range(1, 60), 0, 2).Draw(t, "hidden") {
		store.AddPhoto(uint64(id)*100+50+uint64(i), id, "hidden", rapid.SampledFrom(classes(false)).Draw(t, "hidden class"), date)
		last = max(last, date)
	}
	if last > 0 && rapid.IntRange(0, 3).Draw(t, "deleted a newer one") == 0 {
		last += 5
	}
	store.SetLastUpload(id, last)
	return last
}

// set is the set that belongs to the scores.
func set(scores map[member.ID]uint64) (entries []index.Entry) {
	for id, score := range scores {
		if score > 0 {
			entries = append(entries, index.Entry{Contact: id, Score: score})
		}
	}
	slices.SortFunc(entries, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Contact, a.Contact))
	})
	return entries[:min(len(entries), mostSet)]
}
