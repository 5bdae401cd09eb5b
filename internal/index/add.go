package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
// refill, once each and sorted; in the sets of all others the contact is a
// member now, unless its upload lies outside the set. After an error it is not
// known which were added; add again.
func (ix *Index) Add(ctx context.Context, additions []Addition) (missing []member.ID, err error) {
	if len(additions) == 0 {
		return nil, nil
	}
	defer func(start time.Time) { ix.observe(opAdd, start, err) }(time.Now())
	if !ix.settingsTrusted() {
		if err := ix.Check(ctx); err != nil {
			return nil, err
		}
	}
	calls := ix.addCalls(additions)
	replies, err := ix.evalAll(ctx, addScript, calls, nil)
	if err != nil {
		return nil, translate(ctx, fmt.Sprintf("add to %d sets", len(additions)), err)
	}
	all := added{outcomes: make(map[AddOutcome]int)}
	for i, r := range replies {
		n := len(calls[i].keys) / 2
		all.read(additions[:n], r)
		additions = additions[n:]
	}
	for outcome, n := range all.outcomes {
		adds.WithLabelValues(string(outcome)).Add(float64(n))
	}
	// A set of at most Max members grows by one, so no more than one is cut off.
	trims.Add(float64(all.outcomes[AddTrimmed]))
	return unique(all.missing), all.err
}

// setsPerCall is how many sets one call of the script tells, where one may tell
// several: a call costs more than the commands for a set do. A hundred keep the
// server for about a quarter of a millisecond.
const setsPerCall = 100

// addCalls makes one call of neighbours that are told the same, as those of a
// fan-out are. In a cluster a call may touch one slot only, and so one set.
func (ix *Index) addCalls(additions []Addition) (calls []call) {
	most := 1
	if _, single := ix.client.(*redis.Client); single {
		most = setsPerCall
	}
	for len(additions) > 0 {
		n := 1
		for n < min(most, len(additions)) && additions[n].Entry == additions[0].Entry {
			n++
		}
		calls = append(calls, addCall(ix.options.Settings, additions[:n]))
		additions = additions[n:]
	}
	return calls
}

// addCall tells all the sets of some additions that are alike.
func addCall(s Settings, alike []Addition) call {
	n := len(alike)
	keys := make([]string, 2*n)
	for i, a := range alike {
		keys[i] = UserKey(a.User)
		keys[n+i] = guardOf(keys[i])
	}
	return call{keys, []any{s.Max, s.Min, alike[0].Score, alike[0].Contact.String()}}
}

// added is what calls of addScript did.
type added struct {
	outcomes map[AddOutcome]int
	missing  []member.ID
	err      error // the first one
}

// read adds what one call did for the sets that it told.
func (a *added) read(told []Addition, r reply) {
	parts, _ := r.value.([]any)
	if r.err == nil && len(parts) != 2 {
		r.err = fmt.Errorf("unexpected reply %v", r.value)
	}
	if r.err != nil {
		what := fmt.Sprintf("add contact %s to %d sets, the first that of %s", told[0].Contact, len(told), told[0].User)
		a.err = cmp.Or(a.err, fmt.Errorf("%s: %w", what, r.err))
		return
	}
	outcomes, _ := parts[0].([]any)
	for pair := range slices.Chunk(outcomes, 2) {
		outcome, _ := pair[0].(string)
		times, _ := pair[1].(int64)
		a.outcomes[AddOutcome(outcome)] += int(times)
	}
	missing, _ := parts[1].([]any)
	for _, at := range missing {
		i, _ := at.(int64)
		a.missing = append(a.missing, told[i-1].User)
	}
}

// unique sorts ids and leaves out what is there twice.
func unique(ids []member.ID) []member.ID {
	slices.Sort(ids)
	return slices.Compact(ids)
}
