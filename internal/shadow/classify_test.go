package shadow

import (
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// The contacts 1, 2 and 3 have photos 10 to 13, 20 to 22 and 30. Those at 100 are of one second.
func seenPhotos() map[uint64]contacts.Sighting {
	all := make(map[uint64]contacts.Sighting)
	for id, date := range map[uint64]uint64{10: 100, 11: 100, 12: 90, 13: 80, 20: 100, 21: 70, 22: 60, 30: 200} {
		all[id] = contacts.Sighting{
			Photo: id, Shown: true, IsPhoto: true, Owner: member.ID(id / 10), DateUpload: date, Visibility: contacts.Public,
			IsMember: true, LastUpload: 200, IsContact: true, Calls: true,
		}
	}
	return all
}

func albumOf(all map[uint64]contacts.Sighting, ids ...uint64) (a contacts.Album) {
	for _, id := range ids {
		a.Contact = &contacts.Profile{ID: all[id].Owner}
		a.Photos = append(a.Photos, contacts.Photo{ID: id, DateUpload: all[id].DateUpload})
	}
	return a
}

func TestClassify(t *testing.T) {
	t.Parallel()
	type ids = []uint64
	of := func(id uint64, change func(s *contacts.Sighting)) func(map[uint64]contacts.Sighting) {
		return func(all map[uint64]contacts.Sighting) {
			s := all[id]
			s.Photo = id
			change(&s)
			all[id] = s
		}
	}
	none := func(map[uint64]contacts.Sighting) {}
	friends := func(s *contacts.Sighting) { s.Visibility = contacts.Friends }
	for name, test := range map[string]struct {
		due, theirs ids
		change      func(map[uint64]contacts.Sighting)
		class       Class
		cause       Cause
		photo       uint64
	}{
		"another order within a second":            {ids{11, 10, 12}, ids{10, 11, 12}, none, OrderOfEquals, "", 10},
		"cut off within a second":                  {ids{11}, ids{10}, none, OrderOfEquals, "", 10},
		"two contacts in a second":                 {ids{20, 21}, ids{11, 10, 12, 13}, none, OrderOfEquals, "", 11},
		"two contacts at once in a second":         {ids{11, 10}, ids{11, 20}, none, AnotherContact, "", 20},
		"theirs ends early":                        {ids{11, 10, 12}, ids{11, 10}, none, HiddenByTheirs, Deleted, 12},
		"another order":                            {ids{11, 12, 13}, ids{13, 12, 11}, none, Unexplained, "", 13},
		"a photo twice":                            {ids{11, 10}, ids{11, 11}, none, Unexplained, "", 11},
		"more of the same contact":                 {ids{11, 12}, ids{11, 12, 13}, none, Unexplained, "", 13},
		"photos of several contacts":               {ids{11, 12}, ids{12, 21}, none, AnotherContact, "", 12},
		"an older contact":                         {ids{12, 13}, ids{21, 22}, none, AnotherContact, "", 12},
		"a newer contact":                          {ids{12, 13}, ids{20, 21}, none, Unexplained, "", 20},
		"a newer contact whose upload is not told": {ids{12, 13}, ids{20, 21}, of(20, func(s *contacts.Sighting) { s.LastUpload = 99 }), HiddenByOurs, LastUpload, 20},
		"nothing is due":                           {nil, ids{12}, none, Unexplained, "", 12},
		"nothing is due, as it is not told":        {nil, ids{12}, of(12, func(s *contacts.Sighting) { s.LastUpload = 0 }), HiddenByOurs, LastUpload, 12},
		"a blocked photo":                          {nil, ids{12}, of(12, func(s *contacts.Sighting) { s.Shown, s.Blocks = false, true }), HiddenByOurs, Block, 12},
		"a photo of a stranger":                    {nil, ids{12}, of(12, func(s *contacts.Sighting) { s.Shown, s.IsContact = false, false }), HiddenByOurs, Relation, 12},
		"a private photo":                          {ids{21}, ids{12}, of(12, func(s *contacts.Sighting) { s.Shown, s.Visibility = false, contacts.Private }), HiddenByOurs, Visibility, 12},
		"a photo that is gone":                     {ids{21}, ids{12}, of(12, func(s *contacts.Sighting) { *s = contacts.Sighting{Photo: 12} }), HiddenByOurs, Deleted, 12},
		"a photo whose owner is gone":              {ids{21}, ids{12}, of(12, func(s *contacts.Sighting) { s.Shown, s.IsMember, s.IsContact = false, false, false }), HiddenByOurs, Deleted, 12},
		"the second is hidden by ours":             {ids{11, 12}, ids{11, 10, 12}, of(10, func(s *contacts.Sighting) { s.Shown, s.Visibility = false, contacts.Family }), HiddenByOurs, Visibility, 10},
		"theirs hides one of them":                 {ids{11, 12, 13}, ids{11, 13}, none, HiddenByTheirs, Deleted, 12},
		"theirs hides one for friends":             {ids{11, 12, 13}, ids{11, 13}, of(12, friends), HiddenByTheirs, Visibility, 12},
		"theirs hides all":                         {ids{12, 13}, nil, none, HiddenByTheirs, Deleted, 12},
		"theirs hides all that are not mutual":     {ids{12, 13}, nil, of(12, func(s *contacts.Sighting) { s.Calls = false }), HiddenByTheirs, Relation, 12},
		"theirs hides those whom I block":          {ids{12, 13}, ids{21}, of(12, func(s *contacts.Sighting) { s.Blocked, s.Calls = true, false }), HiddenByTheirs, Block, 12},
		"theirs hides the newer one for friends":   {ids{12, 13}, ids{21}, of(13, friends), AnotherContact, "", 12}, // 12 is public
	} {
		all := seenPhotos()
		test.change(all)
		got := classify(albumOf(all, test.due...), test.theirs, all)
		if got.class != test.class || got.cause != test.cause || got.photo != test.photo || got.detail == "" {
			t.Errorf("%s: %+v, want %s, %q, %d", name, got, test.class, test.cause, test.photo)
		}
	}
}

// Every answer of up to three photos has a class, and none makes it panic.
func TestEveryDifferenceHasAClass(t *testing.T) {
	t.Parallel()
	all := seenPhotos()
	ids := []uint64{10, 11, 12, 20, 21, 30, 99}
	var lists [][]uint64
	for _, a := range append(ids, 0) {
		for _, b := range append(ids, 0) {
			for _, c := range append(ids, 0) {
				list := slices.DeleteFunc([]uint64{a, b, c}, func(id uint64) bool { return id == 0 })
				lists = append(lists, list)
			}
		}
	}
	for _, due := range [][]uint64{nil, {11}, {11, 10, 12}, {20, 21}, {30}} {
		for _, theirs := range lists {
			if slices.Equal(due, theirs) {
				continue
			}
			got := classify(albumOf(all, due...), theirs, all)
			if !slices.Contains(Classes(), got.class) || got.class == Lag || got.photo == 0 || got.detail == "" {
				t.Errorf("due %v, theirs %v: %+v", due, theirs, got)
			}
			if slices.Contains(theirs, 99) != (got.class == HiddenByOurs && got.cause == Deleted) {
				t.Errorf("due %v, theirs %v, with one that is not there: %+v", due, theirs, got)
			}
		}
	}
}
