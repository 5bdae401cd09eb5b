package endtoend_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// Who lives in a town. The people have contacts and upload. The celebrity does
// too, to all the fans. The hermit has everybody for a follower and blocks them
// all.
const (
	people    = 40
	celebrity = member.ID(50)
	hermit    = member.ID(51)
	firstFan  = member.ID(1001)
)

// start is when the changes begin, in unix seconds: whatever was loaded happened
// before.
const start = 1_400_000_000

// secret is the title of photos that nobody may ever see.
const secret = "secret"

// town is a site with random members, contacts and photos.
type town struct {
	*ground
	fans int
	rnd  *rand.Rand
}

// newTown loads a town onto g. The seed determines all random choices.
func newTown(t *testing.T, g *ground, seed uint64, fans int) *town {
	t.Helper()
	tn := &town{ground: g, fans: fans, rnd: rand.New(rand.NewPCG(seed, 0))}
	must(t, g.site.LoadMembers(t.Context(), tn.members()))
	must(t, g.site.LoadContacts(t.Context(), append(tn.friendships(), tn.fandom()...)))
	must(t, g.site.LoadPhotos(t.Context(), tn.photos()))
	for id := range member.ID(people) {
		must(t, g.site.Block(t.Context(), hermit, id+1))
	}
	return tn
}

// needFor makes the size of the sets a matter of the seed, too.
func needFor(seed uint64) int { return 3 + int(seed%6) }

func (tn *town) members() []site.Member {
	members := []site.Member{{ID: celebrity, Username: "celebrity"}, {ID: hermit, Username: "hermit"}}
	for _, id := range tn.viewers() {
		members = append(members, site.Member{ID: id, Username: "member " + id.String()})
	}
	return members
}

// viewers are the people and the fans.
func (tn *town) viewers() []member.ID {
	ids := make([]member.ID, 0, people+tn.fans)
	for i := range member.ID(people) {
		ids = append(ids, i+1)
	}
	for i := range member.ID(tn.fans) {
		ids = append(ids, firstFan+i)
	}
	return ids
}

// friendships are the people's contacts.
func (tn *town) friendships() []site.Relation {
	var all []site.Relation
	for i := range member.ID(people) {
		user := i + 1
		all = append(all, site.Relation{User: user, Contact: hermit}, site.Relation{User: celebrity, Contact: user, Grant: someGrant(tn.rnd)})
		if tn.rnd.IntN(10) < 7 {
			all = append(all, site.Relation{User: user, Contact: celebrity})
		}
		for range 2 + tn.rnd.IntN(12) {
			if contact := somePerson(tn.rnd); contact != user {
				all = append(all, site.Relation{User: user, Contact: contact, Grant: someGrant(tn.rnd)})
			}
		}
	}
	return all
}

// fandom makes every fan follow the celebrity, and some fans a few other people.
func (tn *town) fandom() []site.Relation {
	var all []site.Relation
	for i := range member.ID(tn.fans) {
		all = append(all, site.Relation{User: firstFan + i, Contact: celebrity})
		for range max(0, tn.rnd.IntN(8)-4) {
			all = append(all, site.Relation{User: firstFan + i, Contact: somePerson(tn.rnd)})
		}
	}
	return all
}

// photos returns the photos from before the test. A few people never uploaded anything.
func (tn *town) photos() []site.Photo {
	all := []site.Photo{{Owner: hermit, Title: secret, Visibility: contacts.Public, DateUpload: start + 10}}
	for range 3 {
		all = append(all, site.Photo{Owner: celebrity, Visibility: contacts.Public, DateUpload: start - 1 - uint64(tn.rnd.IntN(50))})
	}
	for i := range member.ID(people - 4) {
		for range 1 + tn.rnd.IntN(5) {
			all = append(all, site.Photo{Owner: i + 1, Visibility: someVisibility(tn.rnd), DateUpload: start - 1 - uint64(tn.rnd.IntN(100))})
		}
		if tn.rnd.IntN(3) == 0 {
			all = append(all, site.Photo{Owner: i + 1, Title: secret, Visibility: contacts.Private, DateUpload: start})
		}
	}
	return all
}

func somePerson(rnd *rand.Rand) member.ID { return member.ID(1 + rnd.IntN(people)) }

func someGrant(rnd *rand.Rand) site.Grant {
	return site.Grant{Friend: rnd.IntN(3) == 0, Family: rnd.IntN(4) == 0}
}

func someVisibility(rnd *rand.Rand) contacts.Visibility {
	all := append(slices.Repeat([]contacts.Visibility{contacts.Public}, 3), contacts.Classes()...) // half of them public
	return all[rnd.IntN(len(all))]
}
