package contacts_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

func testMembers(t *testing.T, w world) {
	w.members(t, 9, 3, 5, math.MaxUint64)
	got, err := w.Members(t.Context(), 0, 2)
	equal(t, "the first page", got, err, []member.ID{3, 5})
	got, err = w.Members(t.Context(), 5, 2)
	equal(t, "the second page", got, err, []member.ID{9, math.MaxUint64})
	got, err = w.Members(t.Context(), math.MaxUint64, 2)
	equal(t, "after the last", got, err, nil)
	got, err = w.Members(t.Context(), 0, 0)
	equal(t, "no limit", got, err, nil)
	for span, want := range map[[2]member.ID]int64{{4, 9}: 2, {1, math.MaxUint64}: 4, {6, 8}: 0} {
		n, err := w.CountMembers(t.Context(), span[0], span[1])
		equal(t, "members from, to", n, err, want)
	}
	for n, want := range map[int64]member.ID{1: 5, 3: math.MaxUint64, 4: 0} {
		got, err := w.NthMember(t.Context(), 4, n)
		equal(t, "the nth after 4", got, err, want)
	}
}

func testNewest(t *testing.T, w world) {
	want := map[member.ID]contacts.Newest{1: {Private: 10}, 2: {}}
	for i, v := range contacts.Classes() {
		owner := member.ID(i + 3)
		want[owner] = contacts.Newest{LastUpload: 200, Photo: 200}
		if v == contacts.Private {
			want[owner] = contacts.Newest{LastUpload: 50, Photo: 50, Private: 200}
		}
	}
	w.members(t, slices.Collect(maps.Keys(want))...)
	for i, v := range contacts.Classes() {
		owner := member.ID(i + 3)
		w.photo(t, 0, owner, contacts.Public, 50)
		w.photo(t, 0, owner, v, 200)
		w.photo(t, 0, owner, v, 100)
	}
	w.photo(t, 0, 1, contacts.Private, 10)
	got, err := w.Newest(t.Context(), slices.AppendSeq([]member.ID{1, 1000, 0}, maps.Keys(want)))
	equal(t, "some", got, err, want)
	got, err = w.Newest(t.Context(), nil)
	equal(t, "none", got, err, map[member.ID]contacts.Newest{})
}
