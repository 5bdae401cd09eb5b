package contacts_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

func testLastUploads(t *testing.T, w world) {
	w.members(t, 1, 2, 3)
	w.public(t, 1, 1, 100)
	w.public(t, 2, 1, 90) // an older upload that arrives late changes nothing
	w.photo(t, 3, 2, contacts.Friends, 200)
	w.photo(t, 4, 2, contacts.Private, 300) // for its owner alone
	w.photo(t, 5, 3, contacts.Private, 300)
	got, err := w.LastUploads(t.Context(), []member.ID{3, 2, 1, 1, 4})
	equal(t, "LastUploads", got, err, map[member.ID]uint64{1: 100, 2: 200, 3: 0})
	got, err = w.LastUploads(t.Context(), nil)
	equal(t, "LastUploads of none", got, err, map[member.ID]uint64{})
}

func testRelations(t *testing.T, w world) {
	w.members(t, 1, 2, 3)
	w.calls(t, 1, 2, 3, 4) // 4 is no member, or not any more
	w.calls(t, 2, 1)
	w.public(t, 1, 2, 100)
	got, err := w.Relations(t.Context(), []contacts.Pair{
		{User: 1, Contact: 2},
		{User: 1, Contact: 3},
		{User: 1, Contact: 4},
		{User: 1, Contact: 5},
		{User: 2, Contact: 1},
		{User: 2, Contact: 3},
		{User: 3, Contact: 1},
		{User: 1, Contact: 2},
		{User: 1, Contact: 1},
	})
	equal(t, "Relations", got, err, map[contacts.Pair]uint64{
		{User: 1, Contact: 2}: 100, {User: 1, Contact: 3}: 0, {User: 2, Contact: 1}: 0,
	})
	got, err = w.Relations(t.Context(), nil)
	equal(t, "Relations of none", got, err, map[contacts.Pair]uint64{})
}

func testManyRelations(t *testing.T, w world) {
	const count = 3000
	w.members(t, sequence(10, count)...)
	w.calls(t, 1, sequence(10, count)...)
	var pairs []contacts.Pair
	want := map[contacts.Pair]uint64{}
	for _, id := range sequence(10, count+5) {
		p := contacts.Pair{User: 1, Contact: id}
		pairs = append(pairs, p)
		if id < 10+count {
			want[p] = 0
		}
	}
	got, err := w.Relations(t.Context(), pairs)
	equal(t, "Relations", got, err, want)
}

func testTopOfOne(t *testing.T, w world) {
	w.members(t, 1, 2, 3, 4, 5, 6)
	w.calls(t, 1, 2, 3, 4, 5, 7)     // 5 never uploads, 7 does not exist
	w.calls(t, 6, 1)                 // the opposite direction
	w.public(t, 1, 2, 100)           //
	w.photo(t, 2, 3, "friends", 300) // recency is no matter of grants
	w.photo(t, 5, 4, "private", 900) // but for its owner alone
	w.public(t, 3, 4, 100)           // a tie: the higher id comes first
	w.public(t, 4, 6, 400)           // no contact of 1
	all := []contacts.Contact{{ID: 3, LastUpload: 300}, {ID: 4, LastUpload: 100}, {ID: 2, LastUpload: 100}}
	for limit := 1; limit <= 4; limit++ {
		got, err := w.TopContacts(t.Context(), []member.ID{1, 2, 99}, limit) // 2 and 99 have no contacts
		equal(t, "limited", got, err, map[member.ID][]contacts.Contact{1: all[:min(limit, 3)]})
	}
}

func testTopContacts(t *testing.T, w world) {
	const users = 150 // more than fit into one statement
	w.members(t, sequence(1, users)...)
	w.members(t, 1001, 1002, 1003)
	w.public(t, 1, 1001, 100)
	w.public(t, 2, 1002, 200)
	w.public(t, 3, 1003, 100)
	want := map[member.ID][]contacts.Contact{}
	for _, user := range sequence(1, users) {
		if user%3 == 0 {
			w.calls(t, user, 1001, 1002, 1003)
			want[user] = []contacts.Contact{{ID: 1002, LastUpload: 200}, {ID: 1003, LastUpload: 100}}
		}
	}
	w.calls(t, 4711, 1001, 1002)                     // rows that are left of a member that does not exist
	ids := append(sequence(1, users), 3, 3, 6, 4711) // some twice
	got, err := w.TopContacts(t.Context(), ids, 2)
	equal(t, "TopContacts", got, err, want)
	got, err = w.TopContacts(t.Context(), nil, 2)
	equal(t, "TopContacts of none", got, err, map[member.ID][]contacts.Contact{})
}

// testTopOfMany: the most recent come neither first nor last, and some are equal.
func testTopOfMany(t *testing.T, w world) {
	const viewer, count, limit = 1, 500, 12
	owners := sequence(1001, count)
	w.members(t, append(owners, viewer)...)
	w.calls(t, viewer, owners...)
	var all []contacts.Contact
	for i, owner := range owners {
		date := 100 + uint64(i)*7%count/2
		w.public(t, uint64(owner), owner, date)
		all = append(all, contacts.Contact{ID: owner, LastUpload: date})
	}
	slices.SortFunc(all, func(a, b contacts.Contact) int {
		return cmp.Or(cmp.Compare(b.LastUpload, a.LastUpload), cmp.Compare(b.ID, a.ID))
	})
	for _, most := range []int{1, limit, count / 2, count, 2 * count} {
		got, err := w.TopContacts(t.Context(), []member.ID{viewer}, most)
		equal(t, fmt.Sprintf("TopContacts: %d of %d", most, count), got, err, map[member.ID][]contacts.Contact{viewer: all[:min(most, count)]})
	}
}

func testFollowers(t *testing.T, w world) {
	for _, user := range []member.ID{5, 3, 9, 1 << 63, math.MaxUint64} {
		w.calls(t, user, 1)
	}
	w.calls(t, 1, 2)
	w.calls(t, 4, 2)
	pages := []struct {
		after member.ID
		want  []member.ID
	}{
		{0, []member.ID{3, 5}},
		{5, []member.ID{9, 1 << 63}},
		{1 << 63, []member.ID{math.MaxUint64}},
		{math.MaxUint64, nil},
		{4, []member.ID{5, 9}},
	}
	for _, p := range pages {
		got, err := w.FollowerPages(t.Context(), []contacts.FollowerPage{{Of: 1, After: p.after}}, 2)
		equal(t, "Followers after "+p.after.String(), got, err, [][]member.ID{p.want})
	}
	got, err := w.FollowerPages(t.Context(), []contacts.FollowerPage{{Of: 77}}, 2)
	equal(t, "Followers of none", got, err, [][]member.ID{nil})
}

func testFollowerPages(t *testing.T, w world) {
	const count = 150 // more than fit into one statement
	var pages []contacts.FollowerPage
	var want [][]member.ID
	for _, of := range sequence(1, count) {
		pages = append(pages, contacts.FollowerPage{Of: of, After: of % 3})
		var page []member.ID
		if of%2 == 0 {
			w.calls(t, 3, of)
			w.calls(t, 2, of)
			w.calls(t, math.MaxUint64, of)
			page = map[member.ID][]member.ID{0: {2, 3}, 1: {2, 3}, 2: {3, math.MaxUint64}}[of%3]
		}
		want = append(want, page)
	}
	pages = append(pages, pages[1]) // the same twice
	want = append(want, want[1])
	got, err := w.FollowerPages(t.Context(), pages, 2)
	equal(t, "FollowerPages", got, err, want)
	got, err = w.FollowerPages(t.Context(), nil, 2)
	equal(t, "FollowerPages of none", got, err, [][]member.ID{})
}

// There may be so many broadcast members, and no more; broadcast members may be named still.
func testTooManyBroadcasts(t *testing.T, w world) {
	w.members(t, sequence(1, contacts.MaxBroadcasts+1)...)
	for id := member.ID(1); id <= contacts.MaxBroadcasts; id++ {
		must(t, w.AddBroadcast(t.Context(), id, false))
	}
	if err := w.AddBroadcast(t.Context(), contacts.MaxBroadcasts+1, true); !errors.Is(err, contacts.ErrTooManyBroadcasts) {
		t.Errorf("one more: %v", err)
	}
	must(t, w.AddBroadcast(t.Context(), 7, true))
	rows, err := w.Broadcasts(t.Context(), []member.ID{7, contacts.MaxBroadcasts + 1})
	equal(t, "Broadcasts", rows, err, map[member.ID]contacts.Broadcast{7: {ID: 7, Named: true}})
}
