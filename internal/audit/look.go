package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// The tasks that change a viewer's own set, and those by which the uploads of a contact
// reach it.
var (
	ofViewer  = tasks.Changing(tasks.OwnSet)
	ofContact = tasks.Changing(tasks.FollowerSets)
)

// looked is what one look found out about one member.
type looked struct {
	moved    bool // it changed while it was compared: nothing is known
	skipped  bool // there is nothing to compare
	private  privateNewest
	away     error // why the node of its set cannot be used; nil: it can
	suspects []Finding
}

// look compares sets with MySQL once: the set, the truth, the pending tasks, the set
// again. The order carries the argument of the package comment; change neither without
// the other.
func (a *Auditor) look(ctx context.Context, members []member.ID) (map[member.ID]looked, error) {
	found := make(map[member.ID]looked, len(members))
	before, err := a.lookAtSets(ctx, members, found)
	if err != nil {
		return nil, err
	}
	facts, suspects, err := a.compare(ctx, before)
	for i := range facts {
		if p := privateNewestOf(facts[i].Newest); p != noPrivate {
			found[before[i].Member] = looked{private: p}
		}
	}
	if err != nil || len(suspects) == 0 {
		return found, err
	}
	for id, list := range suspects {
		found[id] = looked{suspects: list, private: found[id].private}
	}
	before = slices.DeleteFunc(before, func(s index.Set) bool { return len(suspects[s.Member]) == 0 })
	suspected := make([]member.ID, len(before))
	for i, s := range before {
		suspected[i] = s.Member
	}
	after, err := a.lookAtSets(ctx, suspected, found)
	if err != nil {
		return nil, err
	}
	again := make(map[member.ID]index.Set, len(after))
	for _, t := range after {
		again[t.Member] = t
	}
	for _, s := range before {
		t, reached := again[s.Member]
		if !reached {
			continue
		}
		if s.Known != t.Known || s.Size != t.Size || s.Foreign != t.Foreign || !slices.Equal(s.Members, t.Members) {
			found[s.Member] = looked{moved: true}
		}
	}
	return found, nil
}

// lookAtSets returns the sets of members, and says in found which of them are on a node
// that cannot be used.
func (a *Auditor) lookAtSets(ctx context.Context, members []member.ID, found map[member.ID]looked) ([]index.Set, error) {
	var reached []index.Set
	for _, s := range a.options.Sets.Look(ctx, members) {
		switch {
		case s.Err == nil:
			reached = append(reached, s)
		case bulk.IsNodeAway(s.Err):
			found[s.Member] = looked{away: s.Err}
		default:
			return nil, fmt.Errorf("look at %d sets: %w", len(members), s.Err)
		}
	}
	return reached, nil
}

// compare compares sets with the facts, and then asks for the pending tasks. Members whose
// sets are right have no suspects.
func (a *Auditor) compare(ctx context.Context, sets []index.Set) ([]Facts, map[member.ID][]Finding, error) {
	if len(sets) == 0 {
		return nil, nil, nil
	}
	facts, err := a.readFacts(ctx, sets)
	if err != nil {
		return nil, nil, fmt.Errorf("compare %d sets: %w", len(sets), err)
	}
	suspects := make(map[member.ID][]Finding)
	for i, s := range sets {
		if found := judge(s, facts[i], a.options.Sets.Settings(), a.options.ActiveOnly); len(found) > 0 {
			suspects[s.Member] = found
		}
	}
	return facts, suspects, a.findPending(ctx, suspects)
}

// readFacts asks MySQL about the owners of sets, in a few statements for all.
func (a *Auditor) readFacts(ctx context.Context, sets []index.Set) ([]Facts, error) {
	owners := make([]member.ID, len(sets))
	var pairs []contacts.Pair
	for i, s := range sets {
		owners[i] = s.Member
		for _, e := range s.Members {
			pairs = append(pairs, contacts.Pair{User: s.Member, Contact: e.Contact})
		}
	}
	relations, err := a.options.Truth.Relations(ctx, pairs)
	if err != nil {
		return nil, err
	}
	top, err := a.options.Truth.TopContacts(ctx, owners, a.options.Sets.Settings().Max)
	if err != nil {
		return nil, err
	}
	exist, err := a.options.Truth.Existing(ctx, owners)
	if err != nil {
		return nil, err
	}
	newest, err := a.options.Truth.Newest(ctx, owners)
	if err != nil {
		return nil, err
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

// findPending makes a lag of each suspect for which a task is pending. The contacts'
// tasks are asked for before the viewers': an upload that finds no set enqueues a refill
// of the viewer before it is done, so that a query which finds the upload done finds the
// refill.
func (a *Auditor) findPending(ctx context.Context, suspects map[member.ID][]Finding) error {
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
	coming, err := a.fanOutsOf(ctx, slices.Sorted(maps.Keys(involved)))
	if err != nil {
		return err
	}
	changes, err := a.pending(ctx, ofViewer, slices.Sorted(maps.Keys(suspects)))
	if err != nil {
		return err
	}
	// After the tasks: an upload that is found done has written the row of a broadcast member.
	broadcasts, err := a.options.Truth.Broadcasts(ctx, slices.Sorted(maps.Keys(involved)))
	if err != nil {
		return err
	}
	acquit(suspects, broadcasts)
	for viewer, list := range suspects {
		for i, f := range list {
			if f.mendable() && (changes[viewer] || coming.reach(viewer, f.involved)) {
				list[i].Class = Lag
			}
		}
	}
	return nil
}

// acquit drops what sets lack of broadcast members and their rows have.
func acquit(suspects map[member.ID][]Finding, broadcasts map[member.ID]contacts.Broadcast) {
	for viewer, list := range suspects {
		list = slices.DeleteFunc(list, func(f Finding) bool { return f.isOnlyAbout(broadcasts) })
		suspects[viewer] = list
		if len(list) == 0 {
			delete(suspects, viewer)
		}
	}
}

// membersAtOnce bounds the members in one question to the queue.
const membersAtOnce = 1000

// pending returns those of the members that have unfinished tasks of the kinds: their
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

// fanOuts are the pending parts of the fan-outs of contacts. One that does not reach a
// viewer explains nothing of that viewer's set.
type fanOuts map[member.ID][]tasks.PartArgs

// reach reports whether a fan-out of any of the contacts is to reach viewer.
func (f fanOuts) reach(viewer member.ID, contacts []member.ID) bool {
	return slices.ContainsFunc(contacts, func(id member.ID) bool {
		return slices.ContainsFunc(f[id], func(part tasks.PartArgs) bool { return part.Reaches(viewer) })
	})
}

// maxFanOuts bounds the contacts whose tasks are listed. The fan-outs of the others
// count as not begun.
const maxFanOuts = 50

// unfinished are the states of pending tasks.
var unfinished = []queue.State{queue.Waiting, queue.Scheduled, queue.Running}

// fanOutsOf finds the pending fan-outs of contacts. All tasks of one contact come from a
// single statement; see the package comment.
func (a *Auditor) fanOutsOf(ctx context.Context, contacts []member.ID) (fanOuts, error) {
	pending, err := a.pending(ctx, ofContact, contacts)
	if err != nil {
		return nil, err
	}
	found := make(fanOuts, len(pending))
	for id := range pending {
		if len(found) >= maxFanOuts {
			found[id] = everyFollower
			continue
		}
		list, err := a.list(ctx, id, ofContact, unfinished...)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			found[id] = append(found[id], partOf(r))
		}
		if len(list) >= maxTasks { // there are more
			found[id] = everyFollower
		}
	}
	return found, nil
}

// everyFollower stands for a fan-out that has not begun: it reaches all followers.
var everyFollower = []tasks.PartArgs{{}}

// partOf returns which followers a task reaches: all, for an upload.
func partOf(r queue.Record) tasks.PartArgs {
	args, err := tasks.ArgsOf[tasks.PartArgs](queue.Task{ID: r.ID, Kind: r.Kind, Payload: r.Payload})
	if err != nil || r.Kind == tasks.Upload {
		return tasks.PartArgs{}
	}
	return args
}

// maxTasks bounds the tasks of one member that are listed. It is not 1, which would
// tempt the optimizer to read the table in the order of ids.
const maxTasks = 100

// list returns the tasks of the kinds about a member.
func (a *Auditor) list(ctx context.Context, id member.ID, kinds []string, states ...queue.State) ([]queue.Record, error) {
	list, err := a.options.Tasks.List(ctx, queue.Filter{Key: uint64(id), States: states, Kinds: kinds}, maxTasks)
	if err != nil {
		return nil, fmt.Errorf("list the tasks of member %s: %w", id, err)
	}
	return list, nil
}

// Comparison is what one look at a member's set shows, for people.
type Comparison struct {
	Set      index.Set
	Facts    Facts
	Findings []Finding // not confirmed by a second look
}

// Compare looks at a member's set once. It fails as [Auditor.Check] does, and where the
// node of the set cannot be used.
func (a *Auditor) Compare(ctx context.Context, id member.ID) (Comparison, error) {
	sets := a.options.Sets.Look(ctx, []member.ID{id})
	if err := sets[0].Err; err != nil {
		return Comparison{}, err // it names the set
	}
	facts, suspects, err := a.compare(ctx, sets)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{Set: sets[0], Facts: facts[0], Findings: suspects[id]}
	return c, a.explain(ctx, c.Findings)
}
