package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// maxListed bounds the lists of tasks that are read for one report. Beyond it findings
// go without an explanation.
const maxListed = 100

// scope selects tasks of a member.
type scope int

const (
	ownSet       scope = iota // unfinished, they change the member's set
	followerSets              // unfinished, they bring the member's uploads to other sets
	dead
)

// explainer remembers the tasks that it has read.
type explainer struct {
	*Auditor
	listed map[listKey][]queue.Record
}

type listKey struct {
	id    member.ID
	scope scope
}

// explain adds to findings since when lags last, and which errors have dead tasks that
// may be the reason.
func (a *Auditor) explain(ctx context.Context, findings []Finding) error {
	e := explainer{Auditor: a, listed: map[listKey][]queue.Record{}}
	for i := range findings {
		var err error
		switch f := &findings[i]; {
		case f.Class == Lag:
			err = e.explainLag(ctx, f)
		case f.Cause != LostSet && f.mendable(): // no task is the reason of those
			err = e.explainError(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *explainer) tasks(ctx context.Context, id member.ID, s scope) (list []queue.Record, err error) {
	key := listKey{id, s}
	list, known := e.listed[key]
	if known || len(e.listed) >= maxListed {
		return list, nil
	}
	switch s {
	case ownSet:
		list, err = e.list(ctx, id, ofViewer, unfinished...)
	case followerSets:
		list, err = e.list(ctx, id, ofContact, unfinished...)
	case dead:
		list, err = e.list(ctx, id, slices.Concat(ofViewer, ofContact), queue.Dead)
	}
	e.listed[key] = list
	return list, err
}

// explainLag finds the oldest task that explains the lag, and whether it has waited for
// too long.
func (e *explainer) explainLag(ctx context.Context, f *Finding) error {
	keys := []listKey{{f.User, ownSet}}
	for _, id := range f.involved {
		keys = append(keys, listKey{id, followerSets})
	}
	for _, key := range keys {
		list, err := e.tasks(ctx, key.id, key.scope)
		if err != nil {
			return err
		}
		for _, r := range list {
			past := key.scope == followerSets && !partOf(r).Reaches(f.User)
			if past || !f.Since.IsZero() && !r.Created.Before(f.Since) {
				continue
			}
			f.Since = r.Created
			if f.Lasting = e.options.Now().Sub(f.Since) > e.options.LagLimit; f.Lasting {
				f.Detail = fmt.Sprintf("a task of member %s is pending since %s", key.id, f.Since.UTC().Format(time.DateTime))
			}
		}
	}
	return nil
}

// explainError names a dead task of the member or of the contact.
func (e *explainer) explainError(ctx context.Context, f *Finding) error {
	for _, id := range []member.ID{f.User, f.Contact} {
		if id == 0 {
			continue
		}
		list, err := e.tasks(ctx, id, dead)
		if err != nil {
			return err
		}
		for _, t := range list {
			f.Detail = fmt.Sprintf("task %d (%s of member %s) is dead: %s", t.ID, t.Kind, id, t.LastError)
		}
	}
	return nil
}
