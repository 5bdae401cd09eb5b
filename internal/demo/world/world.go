package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
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

// members makes up the members, each with a username of its own.
func (s Spec) members(r *rand.Rand) []site.Member {
	all := make([]site.Member, 0, s.Members)
	taken := make(map[string]bool, s.Members)
	for i := range s.Members {
		name := pick(r, s.Usernames.First) + pick(r, []string{"_", ".", ""}) + pick(r, s.Usernames.Second)
		free := name
		for tries := 1; taken[free]; tries++ {
			free = name + strconv.Itoa(2+r.IntN(98*tries))
		}
		name = free
		taken[name] = true
		all = append(all, site.Member{ID: member.ID(i + 1), Username: name})
	}
	return all
}

// Block says that User blocks Blocked.
type Block struct {
	User    member.ID
	Blocked member.ID
}

// Loader is an empty site that takes a world in. [site.MySQL] and [site.Memory]
// are such.
type Loader interface {
	LoadMembers(ctx context.Context, members []site.Member) error
	LoadContacts(ctx context.Context, relations []site.Relation) error
	LoadPhotos(ctx context.Context, photos []site.Photo) error
	Block(ctx context.Context, user, blocked member.ID) error
}

// Load puts the world into a site. It emits no tasks: there is no index yet, or
// an empty one. The whole of testdata/demo.json takes MariaDB some seconds.
func (w *World) Load(ctx context.Context, into Loader) error {
	if err := into.LoadMembers(ctx, w.Members); err != nil {
		return fmt.Errorf("load the demo's members: %w", err)
	}
	if err := into.LoadContacts(ctx, w.Contacts); err != nil {
		return fmt.Errorf("load the demo's contacts: %w", err)
	}
	if err := into.LoadPhotos(ctx, w.Photos); err != nil {
		return fmt.Errorf("load the demo's photos: %w", err)
	}
	for _, b := range w.Blocks {
		if err := into.Block(ctx, b.User, b.Blocked); err != nil {
			return fmt.Errorf("load the demo's blocks: %w", err)
		}
	}
	return nil
}
