package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// The tasks that change a viewer's own set, and those by which the news of a
// contact reaches it.
var (
	ofViewer  = tasks.Changing(tasks.OwnSet)
	ofContact = tasks.Changing(tasks.FollowerSets)
)

// looked is what one look found out about one user.
type looked struct {
	moved    bool // it changed while it was compared: nothing is known
	skipped  bool // there is nothing to compare
	suspects []suspicion
}

// look compares the sets of users with MySQL once: the set, the truth, the
// pending tasks, the set again. The order carries the argument of the package
// comment; change neither without the other.
func (a *Auditor) look(ctx context.Context, users []member.ID) (map[member.ID]looked, error) {
	before, err := a.options.Sets.Look(ctx, users)
	if err != nil {
		return nil, fmt.Errorf("look at %d sets: %w", len(users), err)
	}
	suspects, err := a.compare(ctx, before)
	if err != nil {
		return nil, err
	}
	found := make(map[member.ID]looked, len(users))
	for _, user := range users {
		found[user] = looked{suspects: suspects[user]}
	}
	if len(suspects) == 0 {
		return found, nil
	}
	if err := a.findPending(ctx, suspects); err != nil {
		return nil, err
	}
	return found, a.lookAgain(ctx, before, found)
}

// lookAgain finds the sets of which there is something to say that moved since.
func (a *Auditor) lookAgain(ctx context.Context, before []index.Set, found map[member.ID]looked) error {
	before = slices.DeleteFunc(slices.Clone(before), func(s index.Set) bool { return len(found[s.Member].suspects) == 0 })
	users := make([]member.ID, len(before))
	for i, s := range before {
		users[i] = s.Member
	}
	after, err := a.options.Sets.Look(ctx, users)
	if err != nil {
		return fmt.Errorf("look again at %d sets: %w", len(users), err)
	}
	for i, s := range before {
		if !same(s, after[i]) {
			found[s.Member] = looked{moved: true}
		}
	}
	return nil
}

func same(s, t index.Set) bool {
	return s.Known == t.Known && s.Size == t.Size && s.Foreign == t.Foreign && slices.Equal(s.Members, t.Members)
}

// compare judges the sets by what MySQL says now. Users about whose sets there is
// nothing to say are absent.
func (a *Auditor) compare(ctx context.Context, sets []index.Set) (map[member.ID][]suspicion, error) {
	facts, err := a.readFacts(ctx, sets)
	if err != nil {
		return nil, err
	}
	rules := a.rules()
	suspects := make(map[member.ID][]suspicion)
	for i, s := range sets {
		if found := judge(s, facts[i], rules); len(found) > 0 {
			suspects[s.Member] = found
		}
	}
	return suspects, nil
}

// readFacts asks MySQL about the owners of sets, in a few statements for all.
func (a *Auditor) readFacts(ctx context.Context, sets []index.Set) ([]Facts, error) {
	users := make([]member.ID, len(sets))
	var pairs []contacts.Pair
	for i, s := range sets {
		users[i] = s.Member
		for _, e := range s.Members {
			pairs = append(pairs, contacts.Pair{User: s.Member, Contact: e.Contact})
		}
	}
	relations, err := a.options.Truth.Relations(ctx, pairs)
	if err != nil {
		return nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	top, err := a.options.Truth.TopContacts(ctx, users, a.options.Sets.Settings().Max)
	if err != nil {
		return nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	exist, err := a.options.Truth.Existing(ctx, users)
	if err != nil {
		return nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	newest, err := a.options.Truth.Newest(ctx, users)
	if err != nil {
		return nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	facts := make([]Facts, len(sets))
	for i, s := range sets {
		f := Facts{
			Exists: exist[s.Member], Newest: newest[s.Member], Top: top[s.Member], LastUploads: make(map[member.ID]uint64, len(s.Members)),
		}
		for _, e := range s.Members {
			if lastUpload, isContact := relations[contacts.Pair{User: s.Member, Contact: e.Contact}]; isContact {
				f.LastUploads[e.Contact] = lastUpload
			}
		}
		facts[i] = f
	}
	return facts, nil
}

// findPending makes a lag of whatever a task is pending for. The contacts' tasks
// are asked for before the viewers': an upload that finds no set enqueues a
// refill of the viewer before it is done, so whoever finds the upload done finds
// the refill.
func (a *Auditor) findPending(ctx context.Context, suspects map[member.ID][]suspicion) error {
	involved := make(map[member.ID]bool)
	for _, list := range suspects {
		for _, s := range list {
			for _, id := range s.involved {
				involved[id] = true
			}
		}
	}
	coming, err := a.newsOf(ctx, slices.Sorted(maps.Keys(involved)))
	if err != nil {
		return err
	}
	changes, err := a.pending(ctx, ofViewer, slices.Sorted(maps.Keys(suspects)))
	if err != nil {
		return err
	}
	for user, list := range suspects {
		for i, s := range list {
			if s.mendable() && (changes[user] || coming.reachesAny(user, s.involved)) {
				list[i].Class = Lag
			}
		}
	}
	return nil
}

// membersAtOnce bounds the members in one question to the queue.
const membersAtOnce = 1000

// pending returns those of the members who have unfinished tasks of the kinds: their
// sets may rightly be behind the truth that was read before the call.
func (a *Auditor) pending(ctx context.Context, kinds []string, members []member.ID) (map[member.ID]bool, error) {
	all := make(map[member.ID]bool)
	for some := range slices.Chunk(members, membersAtOnce) {
		keys := make([]uint64, len(some))
		for i, id := range some {
			keys[i] = uint64(id)
		}
		found, err := a.options.Tasks.Pending(ctx, kinds, keys)
		if err != nil {
			return nil, fmt.Errorf("look for tasks about %d members: %w", len(some), err)
		}
		for key := range found {
			all[member.ID(key)] = true
		}
	}
	return all, nil
}

// Comparison is what one look at a user's set shows, for people.
type Comparison struct {
	Set      index.Set
	Facts    Facts
	Findings []Finding // not confirmed by a second look
}

// Compare looks at a user's set once. It fails as [Auditor.Check] does.
func (a *Auditor) Compare(ctx context.Context, user member.ID) (Comparison, error) {
	sets, err := a.options.Sets.Look(ctx, []member.ID{user})
	if err != nil {
		return Comparison{}, fmt.Errorf("look at the set of %s: %w", user, err)
	}
	facts, err := a.readFacts(ctx, sets)
	if err != nil {
		return Comparison{}, err
	}
	suspects := map[member.ID][]suspicion{user: judge(sets[0], facts[0], a.rules())}
	if err := a.findPending(ctx, suspects); err != nil {
		return Comparison{}, err
	}
	err = a.explain(ctx, suspects[user])
	c := Comparison{Set: sets[0], Facts: facts[0]}
	for _, s := range suspects[user] {
		c.Findings = append(c.Findings, s.Finding)
	}
	return c, err
}

func (a *Auditor) rules() Rules {
	return Rules{Settings: a.options.Sets.Settings(), ActiveOnly: a.options.ActiveOnly}
}
