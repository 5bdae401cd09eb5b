package history_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// errViolated is wrapped by each violation of the proof; any other error is a fault of the test.
var errViolated = errors.New("violated")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errViolated, fmt.Sprintf(format, args...))
}

// world is the test's own record of the members' changes, kept beside the store, so that the definitions
// below share no code with the judged code.
type world struct {
	members  map[member.ID]bool
	contacts map[contacts.Pair]site.Grant
	blocks   map[contacts.Pair]bool
	photos   []photo
	last     map[member.ID]uint64
	// exempt says of whom sets need not know: the broadcast members.
	exempt func(member.ID) bool
}

type photo struct {
	id         uint64
	owner      member.ID
	visibility contacts.Visibility
	date       uint64
}

func newWorld() *world {
	return &world{
		members: map[member.ID]bool{}, contacts: map[contacts.Pair]site.Grant{},
		blocks: map[contacts.Pair]bool{}, last: map[member.ID]uint64{},
	}
}

// isContact reports whether the user calls that member a contact.
func (w *world) isContact(user, of member.ID) bool {
	_, called := w.contacts[contacts.Pair{User: user, Contact: of}]
	return called && w.members[of]
}

// sees is the site's privacy in plain words.
func (w *world) sees(viewer member.ID, p photo) bool {
	if !w.members[viewer] || !w.isContact(viewer, p.owner) {
		return false
	}
	if w.blocks[contacts.Pair{User: p.owner, Contact: viewer}] || w.blocks[contacts.Pair{User: viewer, Contact: p.owner}] {
		return false
	}
	grant, called := w.contacts[contacts.Pair{User: p.owner, Contact: viewer}]
	return p.visibility.ShownTo(contacts.Granted{Contact: called, Friend: grant.Friend, Family: grant.Family, Follows: true})
}

// visible returns all that the viewer may see now, newest first.
func (w *world) visible(viewer member.ID) []photo {
	var seen []photo
	for _, p := range w.photos {
		if w.sees(viewer, p) {
			seen = append(seen, p)
		}
	}
	slices.SortFunc(seen, func(a, b photo) int { return cmp.Or(cmp.Compare(b.date, a.date), cmp.Compare(b.id, a.id)) })
	return seen
}

// album returns the ids of the owner's first photos among the visible photos.
func album(visible []photo, owner member.ID, limit int) []uint64 {
	var ids []uint64
	for _, p := range visible {
		if p.owner == owner && len(ids) < limit {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// answer is the definition: the newest visible photos of the owner of the newest
// visible photo.
func answer(visible []photo, limit int) []uint64 {
	if len(visible) == 0 {
		return nil
	}
	return album(visible, visible[0].owner, limit)
}

// indexable reports whether the user has a contact that ever uploaded.
func (w *world) indexable(user member.ID) bool {
	for pair := range w.contacts {
		if pair.User == user && w.last[pair.Contact] > 0 {
			return true
		}
	}
	return false
}

// checkScores reports whether the scores of contacts are as low as their last uploads. A fan-out that stands
// still between its read and its write may leave a higher score.
func (w *world) checkScores(set index.Set) error {
	for _, e := range set.Members {
		if last := w.last[e.Contact]; w.isContact(set.Member, e.Contact) && e.Score > last {
			return violation("%s uploaded at %d and has a higher score in the set of %s: %v", e.Contact, last, set.Member, set.Members)
		}
	}
	return nil
}

// checkSet reports whether a stored set, which is not empty, belongs to a member and keeps I1 to I3.
func (w *world) checkSet(set index.Set, s index.Settings) error {
	if !w.members[set.Member] {
		return violation("%s is no member and has a set: %v", set.Member, set.Members)
	}
	if set.Foreign > 0 || set.Size != len(set.Members) || set.Size == 0 {
		return violation("the set of %s has foreign members: %+v", set.Member, set)
	}
	if set.Size > s.Max {
		return violation("I3: the set of %s has %d members: %v", set.Member, set.Size, set.Members)
	}
	low := set.Members[0].Score
	for pair := range w.contacts {
		last := w.last[pair.Contact]
		if pair.User != set.Member || last == 0 || w.exempt(pair.Contact) {
			continue
		}
		at := slices.IndexFunc(set.Members, func(e index.Entry) bool { return e.Contact == pair.Contact })
		switch {
		case at < 0 && last > low:
			return violation("I1: %s uploaded at %d and is not in the set of %s: %v", pair.Contact, last, set.Member, set.Members)
		case at < 0 && set.Size < s.Min:
			return violation("I3: %s is not in the set of %s, which is small: %v", pair.Contact, set.Member, set.Members)
		case at >= 0 && set.Members[at].Score < last:
			return violation("I2: %s uploaded at %d and has a lower score in the set of %s: %v", pair.Contact, last, set.Member, set.Members)
		}
	}
	return nil
}
