package world

import (
	"math"
	"math/rand/v2"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// contacts makes up who calls whom a contact: first the long lists of the
// featured viewers, then the crowds behind the celebrities, then everybody.
func (s Spec) contacts(r *rand.Rand) []site.Relation {
	g := &graph{r: r, members: s.Members, seen: map[[2]member.ID]bool{}}
	for i, n := range s.Featured {
		g.gather(n, func(other member.ID) bool { return g.add(member.ID(i+1), other) })
	}
	for i, n := range s.Celebrities {
		celebrity := member.ID(len(s.Featured) + i + 1)
		g.gather(n, func(other member.ID) bool { return int(other) > len(s.Featured) && g.add(other, celebrity) })
	}
	byFame := r.Perm(s.Members)
	for id := len(s.Featured) + len(s.Celebrities) + 1; id <= s.Members; id++ {
		g.ordinary(member.ID(id), byFame, s.MostContacts, len(s.Featured))
	}
	return g.rows
}

// graph collects rows of contacts, each pair once.
type graph struct {
	r       *rand.Rand
	members int
	seen    map[[2]member.ID]bool
	rows    []site.Relation
}

// add makes contact a contact of user and says whether that was news.
func (g *graph) add(user, contact member.ID) bool {
	if user == contact || g.seen[[2]member.ID{user, contact}] {
		return false
	}
	g.seen[[2]member.ID{user, contact}] = true
	g.rows = append(g.rows, site.Relation{User: user, Contact: contact, Grant: site.Grant{
		Friend: g.r.IntN(100) < 22,
		Family: g.r.IntN(100) < 7,
	}})
	return true
}

// gather calls add with members in random order until n of them were taken.
func (g *graph) gather(n int, add func(member.ID) bool) {
	for _, i := range g.r.Perm(g.members) {
		if n == 0 {
			return
		}
		if add(member.ID(i + 1)) {
			n--
		}
	}
}

// ordinary gives a member a list of contacts whose length follows a power law,
// and prefers the famous. Some contacts answer in kind; a featured viewer does
// not, whose number of contacts is given.
func (g *graph) ordinary(user member.ID, byFame []int, most, featured int) {
	const none, shape, least, fame, reciprocal = 25, 1.45, 2.0, 2.2, 14
	if g.r.IntN(100) < none {
		return
	}
	n := min(int(least/math.Pow(1-g.r.Float64(), 1/shape)), most)
	for range n {
		rank := int(float64(g.members) * math.Pow(g.r.Float64(), fame))
		other := member.ID(byFame[rank] + 1)
		if g.add(user, other) && int(other) > featured && g.r.IntN(100) < reciprocal {
			g.add(other, user)
		}
	}
}

// blocks lets a few members block someone who calls them a contact, which is
// where a block makes a difference.
func (s Spec) blocks(r *rand.Rand, rows []site.Relation) []Block {
	seen := map[Block]bool{}
	var all []Block
	for range min(s.Blocks, len(rows)) {
		row := pick(r, rows)
		b := Block{User: row.Contact, Blocked: row.User}
		if !seen[b] {
			seen[b] = true
			all = append(all, b)
		}
	}
	return all
}
