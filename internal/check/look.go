package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// The tasks that change a viewer's own set, and the tasks by which the uploads of a contact reach it.
var (
	ofViewer  = tasks.Changing(tasks.OwnSet)
	ofContact = tasks.Changing(tasks.FollowerSets)
)

// look compares sets with MySQL once: the set, the truth, the pending tasks, the set again. The order carries the
// argument of the package comment; change neither alone.
func (c *Checker) look(ctx context.Context, members []member.ID) (map[member.ID]looked, error) {
	found := make(map[member.ID]looked, len(members))
	before, err := c.lookAtSets(ctx, members, found)
	if err != nil {
		return nil, err
	}
	_, suspects, err := c.compare(ctx, slices.Collect(maps.Values(before)))
	if err != nil {
		return nil, err
	}
	for id, list := range suspects {
		found[id] = looked{suspects: list}
	}
	after, err := c.lookAtSets(ctx, slices.Sorted(maps.Keys(suspects)), found)
	for id, t := range after {
		s := before[id]
		if s.Known != t.Known || s.Size != t.Size || s.Foreign != t.Foreign || !slices.Equal(s.Members, t.Members) {
			found[id] = looked{moved: true}
		}
	}
	return found, err
}

// lookAtSets returns the sets of members, and notes in found the members whose node cannot be used.
func (c *Checker) lookAtSets(ctx context.Context, members []member.ID, found map[member.ID]looked) (map[member.ID]index.Set, error) {
	if len(members) == 0 {
		return nil, nil
	}
	reached := make(map[member.ID]index.Set, len(members))
	for _, s := range c.options.Sets.Look(ctx, members) {
		switch {
		case s.Err == nil:
			reached[s.Member] = s
		case tasks.IsAway(s.Err):
			found[s.Member] = looked{failed: s.Err}
		default:
			return nil, fmt.Errorf("look at %d sets: %w", len(members), s.Err)
		}
	}
	return reached, nil
}

// compare compares sets with the facts, and then asks for the pending tasks. Members whose sets are right have no
// suspects.
func (c *Checker) compare(ctx context.Context, sets []index.Set) ([]Facts, map[member.ID][]Finding, error) {
	if len(sets) == 0 {
		return nil, nil, nil
	}
	facts, err := c.readFacts(ctx, sets)
	if err != nil {
		return nil, nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	suspects := make(map[member.ID][]Finding)
	for i, s := range sets {
		if found := judge(s, facts[i], c.options.Sets.Settings(), c.options.ActiveOnly); len(found) > 0 {
			suspects[s.Member] = found
		}
	}
	return facts, suspects, c.findLags(ctx, suspects)
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
// the upload done finds the refill. A fan-out counts as pending for all followers until it is done.
func (c *Checker) findLags(ctx context.Context, suspects map[member.ID][]Finding) error {
	if len(suspects) == 0 {
		return nil
	}
	involved, isLost := involvedIn(suspects)
	coming, err := c.pending(ctx, ofContact, involved)
	if err != nil {
		return err
	}
	changes, err := c.pending(ctx, ofViewer, slices.Sorted(maps.Keys(suspects)))
	if err != nil {
		return err
	}
	// After the tasks: an upload that is found done has written the row of a broadcast member.
	broadcasts, err := c.options.Truth.Broadcasts(ctx, involved)
	if err != nil {
		return err
	}
	coveredBy, err := c.ranges(ctx, isLost)
	if err != nil {
		return err
	}
	for viewer, list := range suspects {
		list = slices.DeleteFunc(list, func(f Finding) bool { return f.isOnlyAbout(broadcasts) })
		for i, f := range list {
			comes := changes[viewer] || slices.ContainsFunc(f.involved, func(id member.ID) bool { return coming[id] })
			if f.mendable() && comes || f.Cause == LostSet && coveredBy(viewer) {
				list[i].Weight = Lag
			}
		}
		if suspects[viewer] = list; len(list) == 0 {
			delete(suspects, viewer)
		}
	}
	return nil
}

// involvedIn returns the contacts that the findings involve, sorted, and whether a set is lost.
func involvedIn(suspects map[member.ID][]Finding) (involved []member.ID, isLost bool) {
	for _, list := range suspects {
		for _, f := range list {
			involved, isLost = append(involved, f.involved...), isLost || f.Cause == LostSet
		}
	}
	slices.Sort(involved)
	return slices.Compact(involved), isLost
}

// ranges returns a function that reports whether a backfill is to build the set of a member.
func (c *Checker) ranges(ctx context.Context, isLost bool) (covers func(member.ID) bool, err error) {
	var ranges []tasks.RangeArgs
	if isLost {
		ranges, err = tasks.UnfinishedRanges(ctx, c.options.Tasks, tasks.RefillRange)
	}
	return func(id member.ID) bool {
		return slices.ContainsFunc(ranges, func(r tasks.RangeArgs) bool { return r.After < id && id <= r.To })
	}, err
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

// maxTasks bounds the tasks of a member that are listed, and the lists. With 1 the optimizer would
// read the table in the order of ids.
const maxTasks = 100

// explain adds to findings since when lags last, and the dead tasks that may be the reason of errors. When
// maxTasks lists were read, the rest go without.
func (c *Checker) explain(ctx context.Context, found []Finding) error {
	left := maxTasks
	each := func(of []member.ID, kinds []string, states []queue.State, do func(queue.Record)) error {
		for _, id := range of {
			if left--; id == 0 || left < 0 {
				continue
			}
			list, err := c.options.Tasks.List(ctx, queue.Filter{Key: uint64(id), States: states, Kinds: kinds}, maxTasks)
			if err != nil {
				return fmt.Errorf("list the tasks of member %s: %w", id, err)
			}
			for _, t := range list {
				do(t)
			}
		}
		return nil
	}
	for i := range found {
		f := &found[i]
		var err error
		switch {
		case f.Weight == Lag:
			note := func(t queue.Record) { c.since(f, t) }
			err = cmp.Or(each([]member.ID{f.User}, ofViewer, tasks.Unfinished, note), each(f.involved, ofContact, tasks.Unfinished, note))
		case f.Cause != LostSet && f.mendable(): // no task is the reason of a lost set
			err = each([]member.ID{f.User, f.Contact}, slices.Concat(ofViewer, ofContact), []queue.State{queue.Dead}, func(t queue.Record) {
				f.Detail = fmt.Sprintf("task %d (%s of member %d) is dead: %s", t.ID, t.Kind, t.Key, t.LastError)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// since notes in a lag a task that explains it, if no older task does.
func (c *Checker) since(f *Finding, t queue.Record) {
	if !f.Since.IsZero() && !t.Created.Before(f.Since) {
		return
	}
	f.Since = t.Created
	if f.Lasting = c.options.Now().Sub(f.Since) > c.options.LagLimit; f.Lasting {
		f.Detail = fmt.Sprintf("a task of member %d is pending since %s", t.Key, f.Since.UTC().Format(time.DateTime))
	}
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
	facts, suspects, err := c.compare(ctx, sets)
	if err != nil {
		return Comparison{}, err
	}
	found := Comparison{Set: sets[0], Facts: facts[0], Findings: suspects[id]}
	return found, c.explain(ctx, found.Findings)
}
