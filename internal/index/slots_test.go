package index_test

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// someSlots draws the slots of some users' sets.
func someSlots(t *rapid.T, name string) (index.Slots, []member.ID) {
	numbers := rapid.SliceOfN(rapid.Uint64Range(1, 1<<40), 0, 200).Draw(t, name)
	users := make([]member.ID, len(numbers))
	for i, n := range numbers {
		users[i] = member.ID(n)
	}
	s := index.SlotsOfUsers(users...)
	if rapid.IntRange(0, 3).Draw(t, name+" of the others") == 3 {
		s = redisnodes.AllSlots().Without(s)
		users = slices.DeleteFunc(users, func(user member.ID) bool { return !s.Has(index.UserKey(user)) })
	}
	return s, users
}

// Slots are what their text says, alone and within JSON.
func TestPropertySlotsAreTheirText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, users := someSlots(t, "users")
		text, err := s.MarshalText()
		if err != nil || string(text) != s.String() || s.IsEmpty() != (len(text) == 0) {
			t.Fatalf("text %q of %v, %v", text, s, err)
		}
		var again index.Slots
		if err := again.UnmarshalText(text); err != nil || again.String() != s.String() || again.Len() != s.Len() {
			t.Fatalf("%s is read as %s, %v", s, again, err)
		}
		for _, user := range users {
			if !again.Has(index.UserKey(user)) {
				t.Fatalf("%s misses the slot of %s", again, user)
			}
		}
		type payload struct {
			Slots index.Slots `json:"slots,omitzero"`
		}
		encoded, err := json.Marshal(payload{s})
		var decoded payload
		if err != nil || json.Unmarshal(encoded, &decoded) != nil || decoded.Slots.String() != s.String() || s.IsEmpty() != (string(encoded) == "{}") {
			t.Fatalf("%s is read as %s, %v", encoded, decoded.Slots, err)
		}
	})
}

// Union and Without are those of sets.
func TestPropertySlotsAreSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, some := someSlots(t, "a")
		b, others := someSlots(t, "b")
		both, less := a.Union(b), a.Without(b)
		for _, user := range slices.Concat(some, others, []member.ID{1, 2, 3, 4, 5, 6, 7, 8}) {
			if inA, inB := a.Has(index.UserKey(user)), b.Has(index.UserKey(user)); both.Has(index.UserKey(user)) != (inA || inB) || less.Has(index.UserKey(user)) != (inA && !inB) {
				t.Fatalf("%s: in %s %v, in %s %v, in the union %v, in the difference %v", user, a, inA, b, inB, both.Has(index.UserKey(user)), less.Has(index.UserKey(user)))
			}
		}
		if less.Len()+b.Len() != both.Len() || both.IsAll() != (both.Len() == 16384) || redisnodes.AllSlots().Without(both).IsEmpty() != both.IsAll() {
			t.Fatalf("%s and %s: union of %d, difference of %d", a, b, both.Len(), less.Len())
		}
		if both.String() != b.Union(a).String() {
			t.Fatalf("%s and %s: %s, %s", a, b, both, b.Union(a))
		}
	})
}

func TestSlotsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, text := range []string{",", "1,", "a", "-1", "5-3", "16384", "0-16384", "3,2", "0-5,5", "1-2-3", " 1", "1;2"} {
		var s index.Slots
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, s)
		}
	}
	for text, n := range map[string]int{"": 0, "0-16383": 16384, "0-5460,9000": 5462, "7": 1} {
		var s index.Slots
		if err := s.UnmarshalText([]byte(text)); err != nil || s.Len() != n || s.String() != text {
			t.Errorf("%q is read as %s with %d slots, %v", text, s, s.Len(), err)
		}
	}
}
