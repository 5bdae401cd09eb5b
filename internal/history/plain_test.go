package history_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// rule is a rule of package index.
type rule int

const (
	noRule rule = iota
	applyUnderToken
	beginShares
	goneIsConflict
	emptyApplies
	removalWithRefill
	refillAdds
	cutToMax
	correctUnchanged
	addRefuses
	addRaises
	addNeverCreates
	missingEndsUpdates
	outsideEndsUpdates
	trimmedEndsUpdates
	belowEndsUpdates
	unchangedEndsUpdates
	removeUnchanged
	emptyRefillDeletes
)

// plainIndex stands for indextest.Memory. The code can leave out each rule by itself: then a history has to
// notice.
type plainIndex struct {
	without  rule
	settings index.Settings
	sets     map[member.ID][]index.Entry // lowest first
	guards   map[member.ID]string
	tokens   int
}

// leaving opens backends that do without a rule.
func leaving(without rule) opener {
	return func(_ context.Context, s index.Settings) (backend, error) {
		return over(newPlainIndex(without, s)), nil
	}
}

func newPlainIndex(without rule, s index.Settings) *plainIndex {
	return &plainIndex{without: without, settings: s, sets: map[member.ID][]index.Entry{}, guards: map[member.ID]string{}}
}

func (x *plainIndex) keeps(r rule) bool { return x.without != r }

func (x *plainIndex) Settings() index.Settings { return x.settings }

func (x *plainIndex) Candidates(_ context.Context, user member.ID) ([]index.Entry, error) {
	if len(x.sets[user]) == 0 {
		return nil, fmt.Errorf("candidates of %s: %w", user, index.ErrMissing)
	}
	list := slices.Clone(x.sets[user])
	slices.Reverse(list)
	return list, nil
}

func (x *plainIndex) Look(_ context.Context, users []member.ID) []index.Set {
	found := make([]index.Set, len(users))
	for i, user := range users {
		set := slices.Clone(x.sets[user])
		found[i] = index.Set{Member: user, Known: len(set) > 0, Members: set, Size: len(set)}
	}
	return found
}

func (x *plainIndex) Begin(_ context.Context, users []member.ID) []index.Update {
	updates := make([]index.Update, len(users))
	for i, user := range users {
		if x.guards[user] == "" || !x.keeps(beginShares) {
			x.tokens++
			x.guards[user] = strconv.Itoa(x.tokens)
		}
		set := slices.Clone(x.sets[user])
		updates[i] = index.Update{Member: user, Known: len(set) > 0, Members: set, Token: x.guards[user]}
	}
	return updates
}

func (x *plainIndex) Add(_ context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	ends := map[index.AddOutcome]bool{
		index.AddMissing: x.keeps(missingEndsUpdates), index.AddOutside: x.keeps(outsideEndsUpdates),
		index.AddTrimmed: x.keeps(trimmedEndsUpdates), index.AddBelow: x.keeps(belowEndsUpdates),
		index.AddUnchanged: x.keeps(unchangedEndsUpdates),
	}
	for _, a := range additions {
		outcome := x.add(a.Member, a.Entry)
		if ends[outcome] {
			delete(x.guards, a.Member)
		}
		if outcome == index.AddMissing && !slices.Contains(missing, a.Member) {
			missing = append(missing, a.Member)
		}
	}
	return missing, nil
}

func (x *plainIndex) add(user member.ID, e index.Entry) index.AddOutcome {
	set := x.sets[user]
	at := position(set, e.Contact)
	switch {
	case len(set) == 0 && x.keeps(addNeverCreates):
		return index.AddMissing
	case at < 0 && len(set) >= x.settings.Min && e.Score < set[0].Score && x.keeps(addRefuses):
		return index.AddOutside
	case at >= 0 && set[at].Score == e.Score:
		return index.AddUnchanged
	case at >= 0 && set[at].Score > e.Score && x.keeps(addRaises):
		return index.AddBelow
	}
	x.put(user, e)
	if x.trim(user) {
		return index.AddTrimmed
	}
	return index.AddTaken
}

func position(set []index.Entry, contact member.ID) int {
	return slices.IndexFunc(set, func(e index.Entry) bool { return e.Contact == contact })
}

// put gives a member its score, or takes it in.
func (x *plainIndex) put(user member.ID, e index.Entry) {
	x.take(user, e.Contact)
	x.sets[user] = append(x.sets[user], e)
	slices.SortFunc(x.sets[user], func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Contact.String(), b.Contact.String()))
	})
}

func (x *plainIndex) take(user, contact member.ID) {
	x.sets[user] = slices.DeleteFunc(slices.Clone(x.sets[user]), func(e index.Entry) bool { return e.Contact == contact })
}

func (x *plainIndex) trim(user member.ID) (cut bool) {
	set := x.sets[user]
	if len(set) <= x.settings.Max || !x.keeps(cutToMax) {
		return false
	}
	x.sets[user] = set[len(set)-x.settings.Max:]
	return true
}

func (x *plainIndex) Apply(ctx context.Context, changes []index.Change) []index.Result {
	results := make([]index.Result, len(changes))
	for i, c := range changes {
		if !x.keeps(emptyApplies) && writesNothing(c) {
			results[i].Outcome = index.Applied
			continue
		}
		if !x.mayApply(c) {
			continue
		}
		results[i].Outcome = index.Applied
		delete(x.guards, c.Member)
		if !x.keeps(removalWithRefill) && c.Known && slices.ContainsFunc(c.Remove, c.Has) {
			if err := x.removeAlone(ctx, c); err != nil {
				results[i] = index.Result{Err: err}
				continue
			}
		}
		x.apply(c)
	}
	return results
}

// NodeOf names no node.
func (*plainIndex) NodeOf(member.ID) (node string, isUsable bool) { return "", true }

// removeAlone executes the removals as a separate command. A process may crash after it.
func (x *plainIndex) removeAlone(ctx context.Context, c index.Change) error {
	for _, contact := range c.Remove {
		x.take(c.Member, contact)
	}
	_, err := acting(ctx, "removal without its refill", false, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

// writesNothing reports whether a change would leave the set as it was at Begin.
func writesNothing(c index.Change) bool {
	removes := slices.ContainsFunc(c.Remove, c.Has)
	adds := slices.ContainsFunc(c.Add, func(e index.Entry) bool { return c.Known && !slices.Contains(c.Members, e) })
	return !removes && !adds && len(c.Refill) == 0
}

func (x *plainIndex) mayApply(c index.Change) bool {
	set := x.sets[c.Member]
	if x.guards[c.Member] != c.Token && x.keeps(applyUnderToken) {
		return false
	}
	if len(set) == 0 && (c.Known && x.keeps(goneIsConflict) || !c.WithRefill) {
		return false
	}
	if c.WithRefill && len(c.Refill) == 0 && len(set) > len(c.Members) { // it would delete members added since Begin
		return false
	}
	changed := func(e index.Entry) bool {
		return slices.Contains(c.Remove, e.Contact) && !slices.Contains(c.Members, e)
	}
	if x.keeps(removeUnchanged) && slices.ContainsFunc(set, changed) {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(set), func(e index.Entry) bool { return slices.Contains(c.Remove, e.Contact) })
	return c.WithRefill || len(left) == len(set) || len(left) >= x.settings.Min
}

func (x *plainIndex) apply(c index.Change) {
	for _, contact := range c.Remove {
		x.take(c.Member, contact)
	}
	for _, r := range c.Correct {
		at := position(x.sets[c.Member], r.Contact)
		if at >= 0 && (x.sets[c.Member][at].Score == r.Seen || !x.keeps(correctUnchanged)) {
			x.put(c.Member, index.Entry{Contact: r.Contact, Score: r.Score})
		}
	}
	if c.WithRefill {
		x.refill(c)
	}
	x.trim(c.Member)
	for _, e := range c.Add {
		if len(x.sets[c.Member]) > 0 {
			x.add(c.Member, e)
		}
	}
}

func (x *plainIndex) refill(c index.Change) {
	if !x.keeps(refillAdds) && c.Known || x.keeps(emptyRefillDeletes) && len(c.Refill) == 0 {
		x.sets[c.Member] = nil
	}
	for _, e := range c.Refill {
		if at := position(x.sets[c.Member], e.Contact); at < 0 || x.sets[c.Member][at].Score < e.Score {
			x.put(c.Member, e)
		}
	}
}

// Forget lets a user's set expire.
func (x *plainIndex) Forget(user member.ID) { delete(x.sets, user) }

// ForgetGuard lets the guard of a user's set expire.
func (x *plainIndex) ForgetGuard(user member.ID) { delete(x.guards, user) }

// ForgetAll loses everything.
func (x *plainIndex) ForgetAll() {
	clear(x.sets)
	clear(x.guards)
}
