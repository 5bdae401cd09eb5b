package demo

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
)

// roster remembers who calls whom a contact, so that the traffic finds someone
// to act without asking the database.
type roster struct {
	world  *world.World
	photos map[member.ID]int // how many each had at the start

	mu       sync.Mutex
	contacts map[member.ID][]member.ID // guarded by mu
}

func newRoster(w *world.World) *roster {
	r := &roster{world: w, photos: map[member.ID]int{}, contacts: map[member.ID][]member.ID{}}
	for _, p := range w.Photos {
		r.photos[p.Owner]++
	}
	for _, row := range w.Contacts {
		r.contacts[row.User] = append(r.contacts[row.User], row.Contact)
	}
	return r
}

// name returns a member's username, or the id for one who is not of the world.
func (r *roster) name(id member.ID) string {
	if name := r.world.Username(id); name != "" {
		return name
	}
	return "member " + id.String()
}

// count returns how many contacts the member has.
func (r *roster) count(user member.ID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.contacts[user])
}

// contactOf draws one of the member's contacts other than except; 0 is nobody.
func (r *roster) contactOf(dice *rand.Rand, user, except member.ID) member.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.contacts[user]
	if len(all) == 0 {
		return 0
	}
	for i, start := 0, dice.IntN(len(all)); i < len(all); i++ {
		if id := all[(start+i)%len(all)]; id != except {
			return id
		}
	}
	return 0
}

// busyContactOf draws a few of the member's contacts and returns the one with
// the most photos; 0 is nobody.
func (r *roster) busyContactOf(dice *rand.Rand, user member.ID) member.ID {
	best := r.contactOf(dice, user, 0)
	for range 3 {
		if other := r.contactOf(dice, user, 0); r.photos[other] > r.photos[best] {
			best = other
		}
	}
	return best
}

func (r *roster) has(user, contact member.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.contacts[user], contact)
}

func (r *roster) add(user, contact member.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.contacts[user], contact) {
		r.contacts[user] = append(r.contacts[user], contact)
	}
}

func (r *roster) remove(user, contact member.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.contacts[user], contact); i >= 0 {
		r.contacts[user] = slices.Delete(r.contacts[user], i, i+1)
	}
}

// anyone draws a member, all being equal.
func (r *roster) anyone(dice *rand.Rand) member.ID {
	return member.ID(dice.IntN(len(r.world.Members)) + 1)
}

// busy draws a member by how many photos they had at the start; 0 is nobody.
func (r *roster) busy(dice *rand.Rand) member.ID {
	if len(r.world.Photos) == 0 {
		return 0
	}
	return r.world.Photos[dice.IntN(len(r.world.Photos))].Owner
}

// famous draws a member by how many followers they had at the start; 0 is
// nobody.
func (r *roster) famous(dice *rand.Rand) member.ID {
	if len(r.world.Contacts) == 0 {
		return 0
	}
	return r.world.Contacts[dice.IntN(len(r.world.Contacts))].Contact
}
