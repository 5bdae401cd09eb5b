package check

import (
	"fmt"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// entries makes entries of pairs of contact and score.
func entries(pairs ...uint64) []index.Entry {
	var out []index.Entry
	for p := range slices.Chunk(pairs, 2) {
		out = append(out, index.Entry{Contact: member.ID(p[0]), Score: p[1]})
	}
	return out
}

// setOf is a set without foreign members.
func setOf(members ...uint64) index.Set {
	list := entries(members...)
	return index.Set{Member: 1, Known: len(list) > 0, Members: list, Size: len(list)}
}

// truthOf is the truth about member 1, whose contacts have the given last uploads, most recent first.
func truthOf(most int, pairs ...uint64) truth {
	t := truth{map[contacts.Pair]uint64{}, map[member.ID][]contacts.Contact{}, map[member.ID]contacts.Newest{1: {}}}
	for _, e := range entries(pairs...) {
		t.relations[contacts.Pair{User: 1, Contact: e.Contact}] = e.Score
		if e.Score > 0 && len(t.top[1]) < most {
			t.top[1] = append(t.top[1], contacts.Contact{ID: e.Contact, LastUpload: e.Score})
		}
	}
	return t
}

func TestJudge(t *testing.T) {
	t.Parallel()
	rules := index.Settings{Need: 3, Max: 4, Min: 3}
	nobody := truthOf(4, 11, 90)
	delete(nobody.newest, 1)
	foreign := setOf(13, 70, 12, 80, 11, 90)
	foreign.Size, foreign.Foreign = 4, 1
	wrongType := index.Set{Member: 1, Known: true, Size: 1, Foreign: 1}
	huge := setOf(13, 70, 12, 80)
	huge.Size = 500
	five := truthOf(4, 11, 90, 12, 80, 13, 70, 14, 60, 15, 50)
	for name, c := range map[string]struct {
		set        index.Set
		truth      truth
		activeOnly bool
		want       []string
	}{
		"right":                         {setOf(14, 60, 13, 70, 12, 80, 11, 90), five, false, nil},
		"right, and cut off above max":  {setOf(13, 70, 12, 80, 11, 90), five, false, nil},
		"nobody to index":               {setOf(), truthOf(4, 11, 0), false, nil},
		"small and complete":            {setOf(12, 80, 11, 90), truthOf(4, 11, 90, 12, 80, 13, 0), false, nil},
		"a tie with the lowest score":   {setOf(13, 70, 12, 80, 11, 90), truthOf(4, 11, 90, 12, 80, 13, 70, 14, 70), false, nil},
		"lost":                          {setOf(), five, false, []string{"error lost set 0 0/4"}},
		"not kept":                      {setOf(), five, true, nil},
		"of nobody, and missing":        {setOf(), nobody, false, nil},
		"orphan":                        {setOf(12, 80, 11, 90), nobody, false, []string{"waste orphan 0 2/0"}},
		"ghost":                         {setOf(12, 80, 66, 85, 11, 90), truthOf(4, 11, 90, 12, 80), false, []string{"waste ghost 66 85/0"}},
		"stale":                         {setOf(13, 70, 12, 80, 11, 85), five, false, []string{"error stale score 11 85/90"}},
		"high":                          {setOf(13, 70, 12, 80, 11, 95), five, false, []string{"waste high score 11 95/90"}},
		"high, for who never uploaded":  {setOf(13, 70, 12, 80, 11, 90), truthOf(4, 11, 90, 12, 80, 13, 0), false, []string{"waste high score 13 70/0"}},
		"missing":                       {setOf(14, 60, 13, 70, 11, 90), five, false, []string{"error missing contact 12 0/80"}},
		"two missing":                   {setOf(14, 60, 13, 70, 15, 50), five, false, []string{"error missing contact 11 0/90", "error missing contact 12 0/80"}},
		"too many":                      {setOf(15, 50, 14, 60, 13, 70, 12, 80, 11, 90), five, false, []string{"error wrong size 0 5/4"}},
		"far too many: who can tell":    {huge, five, false, []string{"error wrong size 0 500/4"}},
		"too few":                       {setOf(12, 80, 11, 90), five, false, []string{"error wrong size 0 2/4"}},
		"too few, and one above lowest": {setOf(13, 70, 11, 90), five, false, []string{"error missing contact 12 0/80", "error wrong size 0 2/4"}},
		"foreign":                       {foreign, five, false, []string{"error foreign 0 1/0"}},
		"no sorted set":                 {wrongType, five, false, []string{"error foreign 0 1/0"}},
	} {
		var got []string
		for _, f := range judge(c.set, c.truth, rules, c.activeOnly) {
			if f.User != c.set.Member {
				t.Errorf("%s: of user %s", name, f.User)
			}
			got = append(got, fmt.Sprintf("%s %s %d %d/%d", f.Weight, f.Cause, f.Contact, f.Stored, f.Actual))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
