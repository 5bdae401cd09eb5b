package check

import (
	"cmp"
	"context"
	"errors"
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

// looked is the result of a look at a member.
type looked struct {
	moved    bool  // it changed while it was compared: nothing is known
	skipped  bool  // there is nothing to compare
	away     error // why the node of its set cannot be used; nil: it can
	suspects []Finding
}

// isAway reports whether an error says that the sets of a node of Redis cannot be used now.
func isAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrUnknown)
}

// look compares sets with MySQL once: the set, the truth, the pending tasks, the set again. The order carries the
// argument of the package comment; change neither alone.
func (c *Checker) look(ctx context.Context, members []member.ID) (map[member.ID]looked, error) {
	found := make(map[member.ID]looked, len(members))
	before, err := c.lookAtSets(ctx, members, found)
	if err != nil {
		return nil, err
	}
	_, suspects, err := c.compare(ctx, before)
	if err != nil || len(suspects) == 0 {
		return found, err
	}
	first := make(map[member.ID]index.Set, len(suspects))
	for _, s := range before {
		if list := suspects[s.Member]; len(list) > 0 {
			first[s.Member], found[s.Member] = s, looked{suspects: list}
		}
	}
	after, err := c.lookAtSets(ctx, slices.Sorted(maps.Keys(first)), found)
	if err != nil {
		return nil, err
	}
	for _, t := range after {
		s := first[t.Member]
		if s.Known != t.Known || s.Size != t.Size || s.Foreign != t.Foreign || !slices.Equal(s.Members, t.Members) {
			found[t.Member] = looked{moved: true}
		}
	}
	return found, nil
}

// lookAtSets returns the sets of members, and notes in found the members whose node cannot be used.
func (c *Checker) lookAtSets(ctx context.Context, members []member.ID, found map[member.ID]looked) (reached []index.Set, err error) {
	for _, s := range c.options.Sets.Look(ctx, members) {
		switch {
		case s.Err == nil:
			reached = append(reached, s)
		case isAway(s.Err):
			found[s.Member] = looked{away: s.Err}
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
	return facts, suspects, c.findPending(ctx, suspects)
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
		f := Facts{Exists: exists, Newest: own, Top: top[s.Member], LastUploads: make(map[member.ID]uint64)}
		for _, e := range s.Members {
			if lastUpload, isContact := relations[contacts.Pair{User: s.Member, Contact: e.Contact}]; isContact {
				f.LastUploads[e.Contact] = lastUpload
			}
		}
		facts[i] = f
	}
	return facts, nil
}

// findPending makes a lag of each suspect for which a task is pending. The contacts' tasks are asked for before the
// viewers': an upload that finds no set enqueues a refill of the viewer before it is done, so that a query that finds
// the upload done finds the refill. A fan-out counts as pending for all followers until it is done.
func (c *Checker) findPending(ctx context.Context, suspects map[member.ID][]Finding) error {
	if len(suspects) == 0 {
		return nil
	}
	involved := make(map[member.ID]bool)
	for _, list := range suspects {
		for _, f := range list {
			for _, id := range f.involved {
				involved[id] = true
			}
		}
	}
	coming, err := c.pending(ctx, ofContact, slices.Sorted(maps.Keys(involved)))
	if err != nil {
		return err
	}
	changes, err := c.pending(ctx, ofViewer, slices.Sorted(maps.Keys(suspects)))
	if err != nil {
		return err
	}
	// After the tasks: an upload that is found done has written the row of a broadcast member.
	broadcasts, err := c.options.Truth.Broadcasts(ctx, slices.Sorted(maps.Keys(involved)))
	if err != nil {
		return err
	}
	for viewer, list := range suspects {
		list = slices.DeleteFunc(list, func(f Finding) bool { return f.isOnlyAbout(broadcasts) })
		for i, f := range list {
			if f.mendable() && (changes[viewer] || slices.ContainsFunc(f.involved, func(id member.ID) bool { return coming[id] })) {
				list[i].Weight = Lag
			}
		}
		if suspects[viewer] = list; len(list) == 0 {
			delete(suspects, viewer)
		}
	}
	return c.findRanges(ctx, suspects)
}

// findRanges makes a lag of each lost set that a backfill is to build.
func (c *Checker) findRanges(ctx context.Context, suspects map[member.ID][]Finding) error {
	var ranges []tasks.RangeArgs
	for viewer, list := range suspects {
		if list[0].Cause != LostSet || list[0].Weight == Lag {
			continue
		}
		if ranges == nil {
			var err error
			if ranges, err = tasks.UnfinishedRanges(ctx, c.options.Tasks, tasks.RefillRange); err != nil {
				return err
			}
			if len(ranges) == 0 {
				return nil
			}
		}
		if slices.ContainsFunc(ranges, func(r tasks.RangeArgs) bool { return r.After < viewer && viewer <= r.To }) {
			list[0].Weight = Lag
		}
	}
	return nil
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
func (c *Checker) explain(ctx context.Context, found []Finding) (err error) {
	e := explainer{c, maxTasks}
	for i := range found {
		switch f := &found[i]; {
		case err != nil:
		case f.Weight == Lag:
			err = e.explainLag(ctx, f)
		case f.Cause != LostSet && f.mendable(): // no task is the reason of a lost set
			err = e.eachTask(ctx, []member.ID{f.User, f.Contact}, slices.Concat(ofViewer, ofContact), []queue.State{queue.Dead}, func(t queue.Record) {
				f.Detail = fmt.Sprintf("task %d (%s of member %d) is dead: %s", t.ID, t.Kind, t.Key, t.LastError)
			})
		}
	}
	return err
}

// explainer may read so many more lists.
type explainer struct {
	*Checker
	left int
}

// explainLag finds the oldest task that explains a lag, and whether it has waited for too long.
func (e *explainer) explainLag(ctx context.Context, f *Finding) error {
	note := func(t queue.Record) {
		if !f.Since.IsZero() && !t.Created.Before(f.Since) {
			return
		}
		f.Since = t.Created
		if f.Lasting = e.options.Now().Sub(f.Since) > e.options.LagLimit; f.Lasting {
			f.Detail = fmt.Sprintf("a task of member %d is pending since %s", t.Key, f.Since.UTC().Format(time.DateTime))
		}
	}
	err := e.eachTask(ctx, []member.ID{f.User}, ofViewer, tasks.Unfinished, note)
	return cmp.Or(err, e.eachTask(ctx, f.involved, ofContact, tasks.Unfinished, note))
}

// eachTask calls do with the tasks of members.
func (e *explainer) eachTask(ctx context.Context, of []member.ID, kinds []string, states []queue.State, do func(queue.Record)) error {
	for _, id := range of {
		if id == 0 || e.left == 0 {
			continue
		}
		e.left--
		list, err := e.options.Tasks.List(ctx, queue.Filter{Key: uint64(id), States: states, Kinds: kinds}, maxTasks)
		if err != nil {
			return fmt.Errorf("list the tasks of member %s: %w", id, err)
		}
		for _, t := range list {
			do(t)
		}
	}
	return nil
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
