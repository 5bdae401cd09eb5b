package index

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

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
	calls := ix.addCalls(s, additions)
	grouped, err := ix.evalAll(ctx, addScript, calls, nil)
	if err != nil {
		return nil, translate(ctx, fmt.Sprintf("add to %d sets", len(additions)), err)
	}
	replies := ungrouped(calls, grouped)
	ix.countAdds(replies)
	return missingSets(additions, replies)
}

// setsPerCall is how many sets one call of the script tells, where one may tell
// several: a call costs more than the commands for a set do. A hundred keep the
// server for about a third of a millisecond.
const setsPerCall = 100

// addCalls makes one call of neighbours that are told the same, as those of a
// fan-out are. In a cluster a call may touch one slot only, and so one set.
func (ix *Index) addCalls(s Settings, additions []Addition) (calls []call) {
	most := 1
	if _, single := ix.client.(*redis.Client); single {
		most = setsPerCall
	}
	for len(additions) > 0 {
		n := 1
		for n < min(most, len(additions)) && additions[n].Entry == additions[0].Entry {
			n++
		}
		calls = append(calls, addCall(s, additions[:n]))
		additions = additions[n:]
	}
	return calls
}

// addCall tells all the sets of some additions that are alike.
func addCall(s Settings, alike []Addition) call {
	n := len(alike)
	keys := make([]string, 2*n)
	for i, a := range alike {
		keys[i], keys[n+i] = UserKey(a.User), guardKey(a.User)
	}
	return call{keys, []any{s.Max, s.Min, alike[0].Score, alike[0].Contact.String()}}
}

// ungrouped returns a reply for each set. The error of a call is that of its sets.
func ungrouped(calls []call, grouped []reply) (replies []reply) {
	for i, c := range calls {
		outcomes, _ := grouped[i].value.([]any)
		for set := range len(c.keys) / 2 {
			one := reply{err: grouped[i].err}
			if set < len(outcomes) {
				one.value = outcomes[set]
			}
			replies = append(replies, one)
		}
	}
	return replies
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
