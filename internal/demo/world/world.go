package world

import (
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/pictures"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// World is a made-up photo site at the moment of its making. Members have the
// ids 1, 2, 3… without a gap, and so have photos. It is not changed once made
// and may be read concurrently.
type World struct {
	Members  []site.Member
	Contacts []site.Relation
	Blocks   []Block
	Photos   []site.Photo
	// Featured are the members whom the demo offers as viewers.
	Featured []member.ID

	titles Titles
}

// Generate makes the world that the spec describes, as it stands at now. Uploads
// lie in the past, the newest within minutes.
func (s Spec) Generate(now time.Time) *World {
	w := &World{titles: s.Titles}
	for i := range s.Featured {
		w.Featured = append(w.Featured, member.ID(i+1))
	}
	w.Members = s.members(s.dice("members"))
	w.Contacts = s.contacts(s.dice("contacts"))
	w.Blocks = s.blocks(s.dice("blocks"), w.Contacts)
	w.Photos = s.photos(s.dice("photos"), now)
	return w
}

// dice gives every part of the world a source of its own, so that a change to
// one part leaves the others as they are.
func (s Spec) dice(part string) *rand.Rand {
	const prime = 1099511628211
	stream := uint64(len(part))
	for _, b := range []byte(part) {
		stream = stream*prime ^ uint64(b)
	}
	return rand.New(rand.NewPCG(s.Seed, stream))
}

// Username returns a member's name, or "" when the world has no such member.
func (w *World) Username(id member.ID) string {
	if id == 0 || uint64(id) > uint64(len(w.Members)) {
		return ""
	}
	return w.Members[id-1].Username
}

// Title returns the title of the photo with this id: words for what the picture
// of that id shows.
func (w *World) Title(photo uint64) string { return w.titles.of(photo) }

func (t Titles) of(photo uint64) string {
	r := rand.New(rand.NewPCG(photo, 0))
	subject := pictures.SubjectOf(photo)
	return pick(r, t.Light[subject.Light]) + " " + pick(r, t.JoinedBy) + " " + pick(r, t.Scene[subject.Scene])
}

// Visibility draws what a member makes of a photo: mostly public.
func Visibility(r *rand.Rand) contacts.Visibility {
	switch n := r.IntN(100); {
	case n < 68:
		return contacts.Public
	case n < 80:
		return contacts.Friends
	case n < 86:
		return contacts.Family
	case n < 91:
		return contacts.FriendsFamily
	default:
		return contacts.Private
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
