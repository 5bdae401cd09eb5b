package tasks_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// errViolated is wrapped by whatever a schedule proves wrong; any other error is
// a fault of the test.
var errViolated = errors.New("violated")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errViolated, fmt.Sprintf(format, args...))
}

// world is the test's own record of what the members did, kept beside the store
// so that the definitions below share no code with what they judge.
type world struct {
	contacts map[contacts.Pair]site.Grant
	blocks   map[contacts.Pair]bool
	photos   []photo
	last     map[member.ID]uint64
}

type photo struct {
	id         uint64
	owner      member.ID
	visibility contacts.Visibility
	date       uint64
}

func newWorld() *world {
	return &world{contacts: map[contacts.Pair]site.Grant{}, blocks: map[contacts.Pair]bool{}, last: map[member.ID]uint64{}}
}

// sees is the site's privacy in plain words.
func (w *world) sees(viewer member.ID, p photo) bool {
	if _, isContact := w.contacts[contacts.Pair{User: viewer, Contact: p.owner}]; !isContact {
		return false
	}
	if w.blocks[contacts.Pair{User: p.owner, Contact: viewer}] {
		return false
	}
	granted := w.contacts[contacts.Pair{User: p.owner, Contact: viewer}]
	switch p.visibility {
	case contacts.Public:
		return true
	case contacts.Friends:
		return granted.Friend
	case contacts.Family:
		return granted.Family
	case contacts.FriendsFamily:
		return granted.Friend || granted.Family
	case contacts.Private:
	}
	return false
}

// answer is the definition: the ids of the newest visible photos of the owner of
// the newest visible photo.
func (w *world) answer(viewer member.ID, limit int) []uint64 {
	var seen []photo
	for _, p := range w.photos {
		if w.sees(viewer, p) {
			seen = append(seen, p)
		}
	}
	slices.SortFunc(seen, func(a, b photo) int { return cmp.Or(cmp.Compare(b.date, a.date), cmp.Compare(b.id, a.id)) })
	var ids []uint64
	for _, p := range seen {
		if p.owner == seen[0].owner && len(ids) < limit {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// checkShown tells whether the viewer may see everything that is shown now.
func (w *world) checkShown(viewer member.ID, shown []contacts.Photo) error {
	for _, s := range shown {
		i := slices.IndexFunc(w.photos, func(p photo) bool { return p.id == s.ID })
		if i < 0 || !w.sees(viewer, w.photos[i]) {
			return violation("%s is shown photo %d, which it may not see", viewer, s.ID)
		}
	}
	return nil
}

// checkSet tells whether a stored set, which is not empty, keeps I1 to I3.
func (w *world) checkSet(user member.ID, set []redis.Z, s index.Settings) error {
	scores, low := make(map[string]uint64), uint64(set[0].Score)
	for _, z := range set {
		scores[z.Member.(string)] = uint64(z.Score)
	}
	if len(set) > s.Max {
		return violation("I3: the set of %s has %d members: %v", user, len(set), set)
	}
	for pair := range w.contacts {
		last := w.last[pair.Contact]
		if pair.User != user || last == 0 {
			continue
		}
		score, isMember := scores[pair.Contact.String()]
		switch {
		case !isMember && last > low:
			return violation("I1: %s uploaded at %d and is not in the set of %s: %v", pair.Contact, last, user, set)
		case !isMember && len(set) < s.Min:
			return violation("I3: %s is not in the set of %s, which is small: %v", pair.Contact, user, set)
		case isMember && score < last:
			return violation("I2: %s uploaded at %d and has a lower score in the set of %s: %v", pair.Contact, last, user, set)
		}
	}
	return nil
}
