package world

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// contacts makes up the contacts: of the featured viewers, then the followers of the
// celebrities, then the contacts of everybody else.
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
		g.ordinary(member.ID(id), byFame, s.MaxContacts, len(s.Featured))
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

// add makes contact a contact of m, and reports whether it was none before.
func (g *graph) add(m, contact member.ID) bool {
	pair := [2]member.ID{m, contact}
	if m == contact || g.seen[pair] {
		return false
	}
	g.seen[pair] = true
	g.rows = append(g.rows, site.Relation{User: m, Contact: contact, Grant: site.Grant{
		Friend: g.r.IntN(100) < 22,
		Family: g.r.IntN(100) < 7,
	}})
	return true
}

// gather calls add with members in random order until it returned true n times.
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

// ordinary adds contacts of m, prefers the famous, and draws their number by a power law. Some
// contacts are mutual, but none with a featured viewer, whose number of contacts is given.
func (g *graph) ordinary(m member.ID, byFame []int, maxContacts, featured int) {
	const none, shape, least, fame, reciprocal = 25, 1.45, 2.0, 2.2, 14
	if g.r.IntN(100) < none {
		return
	}
	n := min(int(least/math.Pow(1-g.r.Float64(), 1/shape)), maxContacts)
	for range n {
		rank := int(float64(g.members) * math.Pow(g.r.Float64(), fame))
		other := member.ID(byFame[rank] + 1)
		if g.add(m, other) && int(other) > featured && g.r.IntN(100) < reciprocal {
			g.add(other, m)
		}
	}
}

// blocks lets a few members block a follower, where a block makes a difference.
func (s Spec) blocks(r *rand.Rand, rows []site.Relation) []Block {
	var all []Block
	for range min(s.Blocks, len(rows)) {
		row := pick(r, rows)
		if b := (Block{Member: row.Contact, Blocked: row.User}); !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}
