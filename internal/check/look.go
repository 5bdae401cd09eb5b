package check

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

// The tasks that change a viewer's own set, and the tasks by which the uploads of a contact reach it.
var (
	ofViewer  = tasks.Changing(tasks.OwnSet)
	ofContact = tasks.Changing(tasks.FollowerSets)
)

// look compares sets with MySQL once: the set, the truth, the pending tasks, the set again. The order carries the
// argument of the package comment; change neither alone.
func (c *Checker) look(ctx context.Context, members []member.ID) (map[member.ID]looked, error) {
	all := make(map[member.ID]looked, len(members))
	before, err := c.lookAtSets(ctx, members, all)
	if err != nil {
		return nil, err
	}
	_, found, err := c.compare(ctx, slices.Collect(maps.Values(before)))
	if err != nil {
		return nil, err
	}
	for id, list := range found {
		all[id] = looked{found: list}
	}
	after, err := c.lookAtSets(ctx, slices.Sorted(maps.Keys(found)), all)
	for id, s := range after {
		if b := before[id]; b.Known != s.Known || b.Size != s.Size || b.Foreign != s.Foreign || !slices.Equal(b.Members, s.Members) {
			all[id] = looked{moved: true}
		}
	}
	return all, err
}

// lookAtSets returns the sets of members, and notes in all the members whose node cannot be used.
func (c *Checker) lookAtSets(ctx context.Context, members []member.ID, all map[member.ID]looked) (map[member.ID]index.Set, error) {
	if len(members) == 0 {
		return nil, nil
	}
	reached := make(map[member.ID]index.Set, len(members))
	for _, s := range c.options.Sets.Look(ctx, members) {
		switch {
		case s.Err == nil:
			reached[s.Member] = s
		case tasks.IsAway(s.Err):
			all[s.Member] = looked{failed: s.Err}
		default:
			return nil, fmt.Errorf("look at %d sets: %w", len(members), s.Err)
		}
	}
	return reached, nil
}

// compare compares sets with the facts, and then asks for the pending tasks. Members whose sets are right have no
// findings.
func (c *Checker) compare(ctx context.Context, sets []index.Set) ([]Facts, map[member.ID][]Finding, error) {
	if len(sets) == 0 {
		return nil, nil, nil
	}
	facts, err := c.readFacts(ctx, sets)
	if err != nil {
		return nil, nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	suspects := make(map[member.ID][]suspect)
	for i, s := range sets {
		if list := judge(s, facts[i], c.options.Sets.Settings(), c.options.ActiveOnly); len(list) > 0 {
			suspects[s.Member] = list
		}
	}
	found, err := c.findLags(ctx, suspects)
	return facts, found, err
}

// readFacts asks MySQL about the owners of sets, in a few statements for all.
func (c *Checker) readFacts(ctx context.Context, sets []index.Set) ([]Facts, error) {
	owners := make([]member.ID, len(sets))
	var pairs []contacts.Pair
	for i, s := range sets {
		owners[i] = s.Member
		for _, e := range s.Members {
			pairs = append(pairs, contacts.Pair{User: s.Member, Contact: e.Contact})
		}
	}
	truth := c.options.Truth
	relations, err := truth.Relations(ctx, pairs)
	if err != nil {
		return nil, err
	}
	top, err := truth.TopContacts(ctx, owners, c.options.Sets.Settings().Max)
	if err != nil {
		return nil, err
	}
	newest, err := truth.Newest(ctx, owners)
	if err != nil {
		return nil, err
	}
	facts := make([]Facts, len(sets))
	for i, s := range sets {
		own, exists := newest[s.Member]
		facts[i] = Facts{Exists: exists, Newest: own, Top: top[s.Member], LastUploads: make(map[member.ID]uint64)}
		for _, e := range s.Members {
			if lastUpload, isContact := relations[contacts.Pair{User: s.Member, Contact: e.Contact}]; isContact {
				facts[i].LastUploads[e.Contact] = lastUpload
			}
		}
	}
	return facts, nil
}

// findLags makes a lag of each suspect for which a task is pending. The contacts' tasks are asked for before the
// viewers': an upload that finds no set enqueues a refill of the viewer before it is done, so that a query that finds
// the upload done finds the refill. A fan-out counts as pending for all followers until it is done. An upload that is
// found done has written the row of a broadcast member: the rows are read last.
func (c *Checker) findLags(ctx context.Context, suspects map[member.ID][]suspect) (map[member.ID][]Finding, error) {
	if len(suspects) == 0 {
		return nil, nil
	}
	involved, isLost := involvedIn(suspects)
	coming, err := c.pending(ctx, ofContact, involved)
	if err != nil {
		return nil, err
	}
	changes, err := c.pending(ctx, ofViewer, slices.Sorted(maps.Keys(suspects)))
	if err != nil {
		return nil, err
	}
	rows, err := c.options.Truth.Broadcasts(ctx, involved)
	if err != nil {
		return nil, err
	}
	var building []tasks.RangeArgs // backfills that are to build lost sets
	if isLost {
		building, err = tasks.UnfinishedRanges(ctx, c.options.Tasks, tasks.RefillRange)
	}
	found := make(map[member.ID][]Finding, len(suspects))
	for viewer, list := range suspects {
		for _, s := range list {
			comes := changes[viewer] || slices.ContainsFunc(s.involved, func(id member.ID) bool { return coming[id] })
			isBuilt := s.Cause == LostSet && slices.ContainsFunc(building, func(r tasks.RangeArgs) bool { return r.Covers(viewer) })
			if comes && s.mendable() || isBuilt {
				s.Weight = Lag
			}
			if !s.isOnlyAbout(rows) {
				found[viewer] = append(found[viewer], s.Finding)
			}
		}
	}
	return found, err
}

// involvedIn returns the contacts that suspects involve, each once, and whether a set is lost.
func involvedIn(suspects map[member.ID][]suspect) (involved []member.ID, isLost bool) {
	for _, list := range suspects {
		for _, s := range list {
			involved, isLost = append(involved, s.involved...), isLost || s.Cause == LostSet
		}
	}
	slices.Sort(involved)
	return slices.Compact(involved), isLost
}

// membersAtOnce bounds the members in a question to the queue.
const membersAtOnce = 1000

// pending returns the members that have unfinished tasks of the kinds: their sets may rightly be behind the truth that
// was read before the call.
func (c *Checker) pending(ctx context.Context, kinds []string, members []member.ID) (map[member.ID]bool, error) {
	all := make(map[member.ID]bool)
	for some := range slices.Chunk(members, membersAtOnce) {
		keys := make([]uint64, len(some))
		for i, id := range some {
			keys[i] = uint64(id)
		}
		found, err := c.options.Tasks.Pending(ctx, kinds, keys)
		if err != nil {
			return nil, fmt.Errorf("look for tasks about %d members: %w", len(some), err)
		}
		for key := range found {
			all[member.ID(key)] = true
		}
	}
	return all, nil
}

// Comparison is a look at a member's set, for people.
type Comparison struct {
	Set      index.Set
	Facts    Facts
	Findings []Finding // not confirmed by a second look
}

// Compare looks at a member's set once. It fails as [Checker.Check] does, and where the node of the set cannot be
// used.
func (c *Checker) Compare(ctx context.Context, id member.ID) (Comparison, error) {
	sets := c.options.Sets.Look(ctx, []member.ID{id})
	if err := sets[0].Err; err != nil {
		return Comparison{}, err // it names the set
	}
	facts, found, err := c.compare(ctx, sets)
	if err != nil {
		return Comparison{}, err
	}
	return Comparison{Set: sets[0], Facts: facts[0], Findings: found[id]}, nil
}
