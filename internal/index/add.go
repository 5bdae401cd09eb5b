package index

import (
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Addition is one contact's last upload, for one user's set.
type Addition struct {
	User member.ID
	Entry
}

// Add tells sets of uploads, pipelined. It needs no guard because it only ever
// raises. It returns the users whose set is missing or malformed and wants a
// refill, once each and in no order; in the sets of all others the contact is a
// member now, unless its upload lies outside the set. After an error it is not
// known which were added; add again.
func (ix *Index) Add(ctx context.Context, additions []Addition) (missing []member.ID, err error) {
	if len(additions) == 0 {
		return nil, nil
	}
	defer func(start time.Time) { ix.observe(OpAdd, start, err) }(time.Now())
	if !ix.settingsTrusted() {
		if err := ix.Check(ctx); err != nil {
			return nil, err
		}
	}
	s := ix.options.Settings
	calls := make([]call, len(additions))
	for i, a := range additions {
		calls[i] = call{[]string{UserKey(a.User), guardKey(a.User)}, []any{s.Max, s.Min, a.Score, a.Contact.String()}}
	}
	replies, err := ix.evalAll(ctx, addScript, calls, nil)
	if err != nil {
		return nil, translate(ctx, fmt.Sprintf("add to %d sets", len(additions)), err)
	}
	ix.countAdds(replies)
	return missingSets(additions, replies)
}

// countAdds tells the observer what the additions did.
func (ix *Index) countAdds(replies []reply) {
	counts := make(map[AddOutcome]int)
	for _, r := range replies {
		if outcome, ok := r.value.(string); ok {
			counts[AddOutcome(outcome)]++
		}
	}
	for outcome, n := range counts {
		ix.options.Observer.Added(outcome, n)
	}
	// A set of at most Max members grows by one, so no more than one is cut off.
	if n := counts[AddTrimmed]; n > 0 {
		ix.options.Observer.Trimmed(n)
	}
}

func missingSets(additions []Addition, replies []reply) ([]member.ID, error) {
	var missing []member.ID
	seen := make(map[member.ID]bool)
	for i, r := range replies {
		user := additions[i].User
		switch {
		case r.err != nil:
			return nil, fmt.Errorf("add contact %s to the set of %s: %w", additions[i].Contact, user, r.err)
		case r.value == string(AddMissing) && !seen[user]:
			seen[user] = true
			missing = append(missing, user)
		}
	}
	return missing, nil
}
