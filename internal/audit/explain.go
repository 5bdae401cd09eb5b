package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// explanationsAtOnce bounds how many members' tasks are looked at for one report.
// Beyond it findings go without an explanation: there are enough of them to see
// what is the matter.
const explanationsAtOnce = 100

// explain finds out since when lags last, and which errors have dead tasks that
// may be the reason.
func (a *Auditor) explain(ctx context.Context, found []suspicion) error {
	e := explaining{Auditor: a, pending: map[tasksOf][]queue.Record{}, dead: map[member.ID]string{}}
	for i := range found {
		var err error
		switch s := &found[i]; {
		case s.Class == Lag:
			err = e.explainLag(ctx, s)
		case s.Cause != LostSet && s.mendable(): // no task is why those are
			err = e.explainError(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// explaining remembers what was found out about members.
type explaining struct {
	*Auditor
	pending map[tasksOf][]queue.Record
	dead    map[member.ID]string // empty: none
}

// tasksOf are a member's tasks: those that change its own set, or those by which
// its news reach others.
type tasksOf struct {
	id   member.ID
	news bool
}

// explainLag finds the oldest task that explains the lag, and whether it has waited
// for too long.
func (e *explaining) explainLag(ctx context.Context, s *suspicion) error {
	who := []tasksOf{{s.User, false}}
	for _, id := range s.involved {
		who = append(who, tasksOf{id, true})
	}
	for _, of := range who {
		since, err := e.pendingSince(ctx, of, s.User)
		if err != nil {
			return err
		}
		if !since.IsZero() && (s.Since.IsZero() || since.Before(s.Since)) {
			s.Since = since
			if s.Lasting = e.options.Now().Sub(since) > e.options.LagLimit; s.Lasting {
				s.Detail = fmt.Sprintf("a task of member %s is pending since %s", of.id, since.UTC().Format(time.DateTime))
			}
		}
	}
	return nil
}

// pendingSince returns since when the oldest of the tasks that will reach viewer is
// pending; zero: there is none.
func (e *explaining) pendingSince(ctx context.Context, of tasksOf, viewer member.ID) (since time.Time, err error) {
	list, known := e.pending[of]
	if !known && len(e.pending) < explanationsAtOnce {
		types := ofViewer
		if of.news {
			types = ofContact
		}
		if list, err = e.list(ctx, of.id, types, unfinished...); err != nil {
			return time.Time{}, err
		}
		e.pending[of] = list
	}
	for _, r := range list {
		if (since.IsZero() || r.Created.Before(since)) && (!of.news || viewer > reach(r)) {
			since = r.Created
		}
	}
	return since, nil
}

// explainError names a dead task of the user or of the contact.
func (e *explaining) explainError(ctx context.Context, s *suspicion) error {
	for _, id := range []member.ID{s.User, s.Contact} {
		if id == 0 {
			continue
		}
		reason, err := e.deadOf(ctx, id)
		if err != nil {
			return err
		}
		if reason != "" {
			s.Detail = reason
		}
	}
	return nil
}

func (e *explaining) deadOf(ctx context.Context, id member.ID) (string, error) {
	reason, known := e.dead[id]
	if known || len(e.dead) >= explanationsAtOnce {
		return reason, nil
	}
	list, err := e.list(ctx, id, slices.Concat(ofViewer, ofContact), queue.Dead)
	for _, t := range list {
		reason = fmt.Sprintf("task %d (%s of member %s) is dead: %s", t.ID, t.Kind, id, t.LastError)
	}
	e.dead[id] = reason
	return reason, err
}
