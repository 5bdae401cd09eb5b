package check

import (
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// seenPhotos are those of the contacts 1, 2 and 3: 10 to 13, 20 to 22 and 30. Those at 100 are of one second.
func seenPhotos() sightings {
	all := make(sightings)
	for id, date := range map[uint64]uint64{10: 100, 11: 100, 12: 90, 13: 80, 20: 100, 21: 70, 22: 60, 30: 200} {
		all[id] = contacts.Sighting{Photo: id, Owner: member.ID(id / 10), DateUpload: date, LastUpload: 200, Doubt: "condition"}
	}
	all[99] = contacts.Sighting{Photo: 99, Hidden: "deleted"}
	return all
}

func TestClassify(t *testing.T) {
	t.Parallel()
	type ids = []uint64
	for name, test := range map[string]struct {
		ours, theirs ids
		class        Class
		photo        uint64
	}{
		"another order within a second":    {ids{11, 10, 12}, ids{10, 11, 12}, "order_of_equals", 10},
		"cut off within a second":          {ids{11}, ids{10}, "order_of_equals", 10},
		"two contacts in a second":         {ids{20, 21}, ids{11, 10, 12, 13}, "order_of_equals", 11},
		"two contacts at once in a second": {ids{11, 10}, ids{11, 20}, "another_contact", 11},
		"theirs ends early":                {ids{11, 10, 12}, ids{11, 10}, "hidden_by_theirs_condition", 12},
		"theirs hides one of them":         {ids{11, 12, 13}, ids{11, 13}, "hidden_by_theirs_condition", 12},
		"theirs hides all":                 {ids{12, 13}, nil, "hidden_by_theirs_condition", 12},
		"another order":                    {ids{11, 12, 13}, ids{13, 12, 11}, "another_order", 13},
		"a photo twice":                    {ids{11, 10}, ids{11, 11}, "another_order", 11},
		"more of the same contact":         {ids{11, 12}, ids{11, 12, 13}, "unexplained", 13},
		"photos of several contacts":       {ids{11, 12}, ids{12, 21}, "another_contact", 12},
		"an older contact":                 {ids{12, 13}, ids{21, 22}, "another_contact", 12},
		"a newer contact":                  {ids{12, 13}, ids{20, 21}, "unexplained", 20},
		"nothing is due":                   {nil, ids{12}, "unexplained", 12},
		"a photo that is gone":             {ids{21}, ids{99}, "hidden_by_ours_deleted", 99},
	} {
		if class, photo := seenPhotos().classify(test.ours, test.theirs); class != test.class || photo != test.photo {
			t.Errorf("%s: %s by %d, want %s by %d", name, class, photo, test.class, test.photo)
		}
	}
}

// Every answer of up to three photos has a class that has a meaning.
func TestEveryDifferenceHasAClass(t *testing.T) {
	t.Parallel()
	all, ids := seenPhotos(), []uint64{0, 10, 11, 12, 20, 21, 30, 99}
	for i := range len(ids) * len(ids) * len(ids) {
		theirs := []uint64{ids[i%8], ids[i/8%8], ids[i/64]}
		theirs = slices.DeleteFunc(theirs, func(id uint64) bool { return id == 0 })
		for _, ours := range [][]uint64{nil, {11}, {11, 10, 12}, {20, 21}, {30}} {
			if slices.Equal(ours, theirs) {
				continue
			}
			class, photo := all.classify(ours, theirs)
			if Meanings[class] == "" || photo == 0 || !slices.Contains(ours, photo) && !slices.Contains(theirs, photo) {
				t.Errorf("ours %v, theirs %v: %s by %d", ours, theirs, class, photo)
			}
		}
	}
}
