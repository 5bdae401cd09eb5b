// Package world makes up the members, contacts and photos of the demo's photo site. They are a
// heavy-tailed graph: a few members have tens of thousands of contacts and a few have tens of
// thousands of followers, while most have a handful. Two worlds of the same [Spec] and moment
// are equal.
package world

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/pictures"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

//go:embed demo.json
var demoSpec []byte

// Demo returns the Spec of the demo, from demo.json.
func Demo() Spec {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(demoSpec))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		panic(fmt.Sprintf("world: demo.json: %v", err)) // it is part of the program
	}
	return s
}

// Spec is the size, the seed and the words of a world.
type Spec struct {
	Seed    uint64 `json:"seed"`
	Members int    `json:"members"`
	// Featured is the number of contacts of the members 1, 2, 3…: the viewers that
	// the demo offers.
	Featured []int `json:"featured"`
	// Celebrities has the minimum numbers of followers of the members after the featured.
	Celebrities []int `json:"celebrities"`
	// MaxContacts bounds the contacts of the members after the celebrities.
	MaxContacts int `json:"max_contacts"`
	Photos      int `json:"photos"` // of all but the quiet members
	// Quiet is the number of members, after the first Members, that uploaded longest ago. They are
	// the contacts of an additional member, the first viewer that the demo offers.
	Quiet     int       `json:"quiet"`
	Blocks    int       `json:"blocks"`
	Usernames Usernames `json:"usernames"`
	Titles    Titles    `json:"titles"`
}

// Usernames are put together from a first and a second word.
type Usernames struct {
	First  []string `json:"first"`
	Second []string `json:"second"`
}

// Titles are put together from a word for the light and a word for the scene of the picture.
type Titles struct {
	Light    map[string][]string `json:"light"`
	Scene    map[string][]string `json:"scene"`
	JoinedBy []string            `json:"joined_by"`
}

// World is a made-up photo site. Members have the ids 1, 2, 3… without a gap, and so
// have photos. It is not changed after [Spec.Generate].
type World struct {
	Members  []site.Member
	Contacts []site.Relation
	Blocks   []Block
	Photos   []site.Photo
	Featured []member.ID // the viewers that the demo offers

	titles Titles
	quiet  member.ID // the first quiet member; 0: none is
}

// Block says that Member blocks Blocked.
type Block struct {
	Member  member.ID
	Blocked member.ID
}

// Generate makes the world of a Spec. All uploads are before now, the newest within
// minutes.
func (s Spec) Generate(now time.Time) *World {
	w := &World{titles: s.Titles}
	for i := range s.Featured {
		w.Featured = append(w.Featured, member.ID(i+1))
	}
	w.Members = s.members(s.dice(1))
	w.Contacts = s.contacts(s.dice(2))
	w.Blocks = s.blocks(s.dice(3), w.Contacts)
	w.Photos = s.photos(s.dice(4), now)
	if s.Quiet > 0 {
		w.addQuiet(s, now)
	}
	return w
}

// IsQuiet reports whether a member, or each of its contacts, uploads nothing any more.
func (w *World) IsQuiet(id member.ID) bool { return w.quiet != 0 && id >= w.quiet }

// dice returns a source for a part of the world, so that a change to the part leaves all other
// parts as they are.
func (s Spec) dice(part uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, part)) }

// members makes up the members, whose usernames are unique.
func (s Spec) members(r *rand.Rand) []site.Member {
	total := s.Members
	if s.Quiet > 0 {
		total += s.Quiet + 1
	}
	all := make([]site.Member, 0, total)
	taken := make(map[string]bool, total)
	for i := range total {
		words := pick(r, s.Usernames.First) + pick(r, []string{"_", ".", ""}) + pick(r, s.Usernames.Second)
		name := words
		for tries := 1; taken[name]; tries++ {
			name = words + strconv.Itoa(2+r.IntN(98*tries))
		}
		taken[name] = true
		all = append(all, site.Member{ID: member.ID(i + 1), Username: name})
	}
	return all
}

// Username returns a member's name, or "" for a member that the world does not have.
func (w *World) Username(id member.ID) string {
	if id == 0 || uint64(id) > uint64(len(w.Members)) {
		return ""
	}
	return w.Members[id-1].Username
}

// Title returns the title of a photo. It describes the picture with the same id.
func (w *World) Title(photo uint64) string { return w.titles.of(photo) }

func (t Titles) of(photo uint64) string {
	r := rand.New(rand.NewPCG(photo, 0))
	subject := pictures.SubjectOf(photo)
	return pick(r, t.Light[subject.Light]) + " " + pick(r, t.JoinedBy) + " " + pick(r, t.Scene[subject.Scene])
}

// rest are the classes beside the common classes.
var rest = slices.DeleteFunc(contacts.Classes(), func(v contacts.Visibility) bool {
	return v == contacts.Public || v == contacts.Friends || v == contacts.Family || v == contacts.FriendsFamily
})

// Visibility draws the visibility of a photo, usually public.
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
		return rest[n%len(rest)]
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// Load puts the world into an empty site. It emits no tasks: the index is empty, too.
func (w *World) Load(ctx context.Context, into site.Site) error {
	if err := into.LoadMembers(ctx, w.Members); err != nil {
		return err
	}
	if err := into.LoadContacts(ctx, w.Contacts); err != nil {
		return err
	}
	if err := into.LoadPhotos(ctx, w.Photos); err != nil {
		return err
	}
	for _, b := range w.Blocks {
		if err := into.Block(ctx, b.Member, b.Blocked); err != nil {
			return err
		}
	}
	return nil
}
