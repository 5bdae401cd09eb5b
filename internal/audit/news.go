package audit

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// news says of contacts whose upload is still to be told to whom it will be told:
// to the followers above an id. A fan-out that is past a viewer explains nothing
// of that viewer's set.
type news map[member.ID]member.ID

// reachesAny tells whether news of any of the contacts are on their way to viewer.
func (n news) reachesAny(viewer member.ID, contacts []member.ID) bool {
	for _, id := range contacts {
		if after, coming := n[id]; coming && viewer > after {
			return true
		}
	}
	return false
}

// newsAtOnce bounds of how many contacts it is found out how far their news are.
// Those of the others count as not begun.
const newsAtOnce = 50

// unfinished are the states of pending tasks.
var unfinished = []queue.State{queue.Waiting, queue.Scheduled, queue.Running}

// newsOf finds the news of contacts that are on their way. All tasks of one contact
// come from a single statement; see the package comment.
func (a *Auditor) newsOf(ctx context.Context, contacts []member.ID) (news, error) {
	pending, err := a.pending(ctx, ofContact, contacts)
	if err != nil {
		return nil, err
	}
	coming := make(news, len(pending))
	for id := range pending {
		if len(coming) >= newsAtOnce {
			coming[id] = 0
			continue
		}
		list, err := a.list(ctx, id, ofContact, unfinished...)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			coming[id] = lowest(list)
		}
	}
	return coming, nil
}

// lowest returns the id above which all followers will be told by one of the tasks.
func lowest(list []queue.Record) member.ID {
	if len(list) >= tasksAtOnce {
		return 0 // there are more
	}
	after := reach(list[0])
	for _, r := range list[1:] {
		after = min(after, reach(r))
	}
	return after
}

// reach returns the id above which a task tells the followers. An upload tells all.
func reach(r queue.Record) member.ID {
	args, err := tasks.ArgsOf(queue.Task{ID: r.ID, Kind: r.Kind, Payload: r.Payload})
	if err != nil || r.Kind != tasks.FanOut {
		return 0
	}
	return args.After
}

// tasksAtOnce bounds how many tasks of one member are looked at. It is not 1,
// which would tempt the optimizer to read the table in the order of ids.
const tasksAtOnce = 100

// list returns the tasks of the types about a member. The types are named because
// the index of the table begins with them.
func (a *Auditor) list(ctx context.Context, id member.ID, types []string, states ...queue.State) ([]queue.Record, error) {
	list, err := a.options.Tasks.List(ctx, queue.Filter{Key: uint64(id), States: states, Kinds: types}, tasksAtOnce)
	if err != nil {
		return nil, fmt.Errorf("look at the tasks of member %s: %w", id, err)
	}
	return list, nil
}
