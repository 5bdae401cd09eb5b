package world

import (
	"math/rand/v2"
	"strconv"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// members makes up everybody, each with a username of their own.
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
