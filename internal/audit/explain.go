package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// explanationsAtOnce bounds how many members' tasks are looked at for one report.
// Beyond it findings go without an explanation: there are enough of them to see
// what is the matter.
const explanationsAtOnce = 100

// tasksAtOnce bounds how many tasks of one member are looked at. It is not 1,
// which would tempt the optimizer to read the table in the order of ids.
const tasksAtOnce = 100

// explain finds out which lags are lasting, and which errors have dead tasks that
// may be the reason.
func (a *Auditor) explain(ctx context.Context, findings []Finding) error {
	e := explaining{Auditor: a, pending: map[member.ID]time.Time{}, dead: map[member.ID]string{}}
	for i := range findings {
		if err := e.explain(ctx, &findings[i]); err != nil {
			return err
		}
	}
	return nil
}

// explaining remembers what was found out about members.
type explaining struct {
	*Auditor
	pending map[member.ID]time.Time // since when the oldest task waits; zero: none
	dead    map[member.ID]string    // empty: none
}

func (e *explaining) explain(ctx context.Context, f *Finding) error {
	members := []member.ID{f.User}
	if f.Contact != 0 {
		members = append(members, f.Contact)
	}
	for _, id := range members {
		switch f.Class {
		case Lag:
			since, err := e.pendingSince(ctx, id)
			if err != nil {
				return err
			}
			if limit := e.options.Now().Add(-e.options.LagLimit); !since.IsZero() && since.Before(limit) {
				f.Lasting, f.Detail = true, fmt.Sprintf("a task of member %s is pending since %s", id, since.UTC().Format(time.DateTime))
			}
		case Error, Waste:
			reason, err := e.deadOf(ctx, id)
			if err != nil {
				return err
			}
			if reason != "" {
				f.Detail = reason
			}
		}
	}
	return nil
}

func (e *explaining) pendingSince(ctx context.Context, id member.ID) (time.Time, error) {
	since, known := e.pending[id]
	if known || len(e.pending) >= explanationsAtOnce {
		return since, nil
	}
	list, err := e.list(ctx, id, tasks.Waiting, tasks.Scheduled, tasks.Running)
	for _, t := range list {
		if since.IsZero() || t.Created.Before(since) {
			since = t.Created
		}
	}
	e.pending[id] = since
	return since, err
}

func (e *explaining) deadOf(ctx context.Context, id member.ID) (string, error) {
	reason, known := e.dead[id]
	if known || len(e.dead) >= explanationsAtOnce {
		return reason, nil
	}
	list, err := e.list(ctx, id, tasks.Dead)
	for _, t := range list {
		reason = fmt.Sprintf("task %d (%s of member %s) is dead: %s", t.ID, t.Type, id, t.LastError)
	}
	e.dead[id] = reason
	return reason, err
}

// list returns the tasks by which something about the member reaches sets. The
// types are named because the index of the table begins with them.
func (e *explaining) list(ctx context.Context, id member.ID, states ...tasks.State) ([]tasks.Record, error) {
	match := tasks.Filter{Subject: id, States: states, Types: append(append([]tasks.Type{}, ofViewer...), ofContact...)}
	list, err := e.options.Tasks.List(ctx, match, tasksAtOnce)
	if err != nil {
		return nil, fmt.Errorf("look at the tasks of member %s: %w", id, err)
	}
	return list, nil
}
