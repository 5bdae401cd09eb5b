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
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Truth is MySQL, for a checker. It must be the primary: a replica lags behind the tasks.
type Truth interface {
	tasks.Store
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
}

// Tasks is the queue, for a checker.
type Tasks interface {
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Checker compares sets and answers with MySQL. It changes nothing, but for [Checker.Repair]. It is safe for
// concurrent use.
type Checker struct {
	Sets       tasks.Index
	Truth      Truth
	Tasks      Tasks
	ActiveOnly bool // a missing set is no error: only the sets of members that read are kept
	// Read reads by way of the index, as the service does, but without hints: they would repair the set. It is for
	// [Checker.CheckAnswers] only.
	Read func(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)

	pause time.Duration // before the second look; it doubles twice; 0: firstPause
}

// Check compares the sets of members with MySQL, each once, with a few statements for all. An error or waste was seen
// three times, with pauses between, so that it takes a second or two where something is wrong. [Report].Failed has the
// members that cannot be compared: the node of the set is away, or MySQL gives up. An error of a server, or an error
// of all members, is returned.
func (c *Checker) Check(ctx context.Context, members []member.ID) (Report, error) {
	return c.check(ctx, members, c.look)
}

// looked is the result of a look at a member. The zero value says that all is right.
type looked struct {
	moved  bool  // it changed while it was compared: nothing is known
	failed error // why it cannot be compared now; errNoPart: there is nothing to compare
	found  []Finding
}

type look func(context.Context, []member.ID) (map[member.ID]looked, error)

// check looks at members together, or at each alone where that fails.
func (c *Checker) check(ctx context.Context, members []member.ID, look look) (Report, error) {
	members = unique(members)
	r, all := Report{Failed: make(map[member.ID]error)}, make(map[member.ID]looked, len(members))
	failed, err := tasks.Apart(members, func(ids []member.ID) error {
		settled, err := c.settle(ctx, ids, look)
		maps.Copy(all, settled)
		return err
	})
	if err != nil {
		return Report{}, err
	}
	for _, id := range members {
		l := all[id]
		switch err := cmp.Or(failed[id], l.failed); {
		case errors.Is(err, errNoPart):
			r.Skipped = append(r.Skipped, id)
		case err != nil:
			r.Failed[id] = err
		case l.moved:
			r.Unsettled++
		default:
			r.add(id, l.found)
		}
	}
	return r, nil
}

func unique(ids []member.ID) []member.ID { return slices.Compact(slices.Sorted(slices.Values(ids))) }

const (
	confirmations = 3 // looks in a row that confirm a difference
	maxLooks      = 7 // after which a set that is not at rest is given up as unsettled
	firstPause    = 400 * time.Millisecond
	membersAtOnce = 1000 // in a question to the queue
)

// settle looks until each difference is either explained by pending tasks or confirmed. While a set moves nothing is
// known, and earlier looks do not count. It returns nothing with an error.
func (c *Checker) settle(ctx context.Context, members []member.ID, look look) (map[member.ID]looked, error) {
	last, streaks := make(map[member.ID]looked), make(map[member.ID]map[Finding]int) // looks in a row
	left, pause := slices.Clone(members), cmp.Or(c.pause, firstPause)
	for try := 0; try < maxLooks && len(left) > 0; try++ {
		if try > 0 {
			if err := retry.Sleep(ctx, retry.Backoff(try, pause, 4*pause)); err != nil {
				return nil, fmt.Errorf("wait for another look: %w", err)
			}
		}
		all, err := look(ctx, left)
		if err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(id member.ID) (isSettled bool) {
			seen := make(map[Finding]int)
			last[id], isSettled = all[id], !all[id].moved
			for _, f := range all[id].found {
				if f.Weight != Lag {
					seen[f] = streaks[id][f] + 1
					isSettled = isSettled && seen[f] >= confirmations
				}
			}
			streaks[id] = seen
			return isSettled
		})
	}
	for _, id := range left {
		last[id] = looked{moved: true}
	}
	return last, nil
}

// look compares sets with MySQL once: the set, the truth, the pending tasks, the set again. The order carries the
// argument of the package comment; change neither alone.
func (c *Checker) look(ctx context.Context, members []member.ID) (map[member.ID]looked, error) {
	all := make(map[member.ID]looked, len(members))
	before, err := c.sets(ctx, members, all) // S1
	if err != nil {
		return nil, err
	}
	truth, err := c.readTruth(ctx, before) // T
	if err != nil {
		return nil, fmt.Errorf("compare %d sets: %w", len(before), err)
	}
	var list suspects
	for _, s := range before {
		list = append(list, judge(s, truth, c.Sets.Settings(), c.ActiveOnly)...)
	}
	found, err := c.weigh(ctx, list) // P
	if err != nil {
		return nil, err
	}
	for id, list := range found {
		all[id] = looked{found: list}
	}
	after, err := c.sets(ctx, slices.Sorted(maps.Keys(found)), all) // S2
	for id, s := range after {
		if b := before[id]; b.Known != s.Known || b.Size != s.Size || b.Foreign != s.Foreign || !slices.Equal(b.Members, s.Members) {
			all[id] = looked{moved: true}
		}
	}
	return all, err
}

// sets returns the sets of members, and notes in all the members whose node cannot be used.
func (c *Checker) sets(ctx context.Context, members []member.ID, all map[member.ID]looked) (map[member.ID]index.Set, error) {
	if len(members) == 0 {
		return nil, nil
	}
	reached := make(map[member.ID]index.Set, len(members))
	for _, s := range c.Sets.Look(ctx, members) {
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

// truth is what MySQL says of some sets.
type truth struct {
	relations map[contacts.Pair]uint64         // the last uploads of the members of a set that are contacts; 0: never uploaded
	top       map[member.ID][]contacts.Contact // the Max contacts that uploaded last, or all there are, most recent first
	newest    map[member.ID]contacts.Newest    // when each owner itself uploaded last; an id that is absent is no member
}

// readTruth asks MySQL about sets, in a statement for each part of the truth.
func (c *Checker) readTruth(ctx context.Context, sets map[member.ID]index.Set) (t truth, err error) {
	owners, pairs := slices.Sorted(maps.Keys(sets)), []contacts.Pair(nil)
	for _, id := range owners {
		for _, e := range sets[id].Members {
			pairs = append(pairs, contacts.Pair{User: id, Contact: e.Contact})
		}
	}
	if t.relations, err = c.Truth.Relations(ctx, pairs); err != nil {
		return t, err
	}
	if t.top, err = c.Truth.TopContacts(ctx, owners, c.Sets.Settings().Max); err != nil {
		return t, err
	}
	t.newest, err = c.Truth.Newest(ctx, owners)
	return t, err
}

// weigh makes a lag of each suspect for which a task is pending, and returns the findings by member. The contacts' tasks
// are asked for before the viewers': an upload that finds no set enqueues a refill of the viewer before it is done, so
// that a query that finds the upload done finds the refill. A fan-out counts as pending for all followers until it is
// done. An upload that is found done has written the row of a broadcast member: the rows are read last.
func (c *Checker) weigh(ctx context.Context, list suspects) (map[member.ID][]Finding, error) {
	var viewers, involved []member.ID
	isLost := false
	for _, s := range list {
		viewers, involved, isLost = append(viewers, s.User), append(involved, s.involved...), isLost || s.Cause == LostSet
	}
	coming, err := c.pending(ctx, tasks.Changing(tasks.FollowerSets), involved)
	if err != nil {
		return nil, err
	}
	changing, err := c.pending(ctx, tasks.Changing(tasks.OwnSet), viewers)
	if err != nil {
		return nil, err
	}
	rows, err := c.Truth.Broadcasts(ctx, involved)
	if err != nil {
		return nil, err
	}
	var building []tasks.RangeArgs // backfills that are to build lost sets
	if isLost {
		building, err = tasks.UnfinishedRanges(ctx, c.Tasks, tasks.RefillRange)
	}
	found := make(map[member.ID][]Finding)
	for _, s := range list {
		comes := changing[s.User] || slices.ContainsFunc(s.involved, func(id member.ID) bool { return coming[id] })
		isBuilt := s.Cause == LostSet && slices.ContainsFunc(building, func(r tasks.RangeArgs) bool { return r.Covers(s.User) })
		if comes && s.mendable() || isBuilt {
			s.Weight = Lag
		}
		if !s.isInRows(rows) {
			found[s.User] = append(found[s.User], s.Finding)
		}
	}
	return found, err
}

// pending returns the members that have unfinished tasks of the kinds: their sets may rightly be behind the truth that
// was read before the call.
func (c *Checker) pending(ctx context.Context, kinds []string, members []member.ID) (map[member.ID]bool, error) {
	all := make(map[member.ID]bool)
	for some := range slices.Chunk(unique(members), membersAtOnce) {
		keys := make([]uint64, len(some))
		for i, id := range some {
			keys[i] = uint64(id)
		}
		found, err := c.Tasks.Pending(ctx, kinds, keys)
		if err != nil {
			return nil, fmt.Errorf("look for tasks about %d members: %w", len(some), err)
		}
		for key := range found {
			all[member.ID(key)] = true
		}
	}
	return all, nil
}

// Orphans returns the ids that are no members.
func (c *Checker) Orphans(ctx context.Context, ids []member.ID) ([]member.ID, error) {
	members, err := c.Truth.LastUploads(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for members: %w", err)
	}
	return slices.DeleteFunc(unique(ids), func(id member.ID) bool {
		_, isMember := members[id]
		return isMember
	}), nil
}

// Repair enqueues a refill for each of some members, of the lowest priority, and returns how many. A refill repairs every
// kind of set.
func (c *Checker) Repair(ctx context.Context, members []member.ID) (enqueued int, err error) {
	batch := make([]queue.New, len(members))
	for i, id := range members {
		batch[i] = tasks.NewRefill(id)
		batch[i].Priority = queue.Idle
	}
	if _, err := c.Tasks.Enqueue(ctx, batch); err != nil {
		return 0, fmt.Errorf("enqueue the refills of %d sets: %w", len(batch), err)
	}
	return len(batch), nil
}
