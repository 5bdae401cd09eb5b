package console

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// deed is a change of tasks, and of which states.
type deed struct {
	Verb, Past string
	possible   []queue.State
	do         func(q Queue, ctx context.Context, match queue.Filter, limit int) (int, error)
}

var deeds = map[string]deed{
	"retry":   {"Retry", "retried", []queue.State{queue.Dead, queue.Scheduled}, Queue.Retry},
	"discard": {"Discard", "discarded", []queue.State{queue.Dead, queue.Scheduled, queue.Waiting}, Queue.Discard},
}

// changing is a page about a change.
type changing struct {
	deed
	Do    string
	Asked asked
	Count int
	More  bool // than Count, or than were changed
	Tasks grid // the first of them

	Done            bool
	Changed, Missed int
	Unfinished      bool // there may be more
	match           queue.Filter
}

// preview is how many tasks are shown, of at most maxCount that are counted.
const (
	preview  = 10
	maxCount = 1000
)

// chosen reads a change. As the command does, it takes dead tasks unless others are named.
func chosen(r *http.Request) (ch changing, err error) {
	d, known := deeds[r.FormValue("do")]
	if !known {
		return ch, fault("want do=retry or do=discard")
	}
	ch = changing{deed: d, Do: r.FormValue("do"), Asked: askedBy(r)}
	if ch.match, err = filter(r); err != nil {
		return ch, err
	}
	switch {
	case !narrowed(ch.match):
		return ch, fault("say which tasks: by id, key, type, queue or error; a state alone is not enough")
	case len(ch.match.IDs) > 0 && len(ch.match.States) == 0:
		ch.match.States = d.possible
	case len(ch.match.States) == 0:
		ch.match.States = []queue.State{queue.Dead}
		ch.Asked.State = string(queue.Dead)
	case !slices.Contains(d.possible, ch.match.States[0]):
		return ch, fault("tasks that are " + string(ch.match.States[0]) + " cannot be " + d.Past)
	}
	return ch, nil
}

// showChange says which tasks it would be. It changes nothing.
func (c *Console) showChange(r *http.Request, v *view) error {
	v.Title, v.Page = "Change tasks", "act"
	ch, err := chosen(r)
	if err != nil {
		return err
	}
	v.Title = ch.Verb + " tasks"
	list, partial, err := c.Queue.Search(r.Context(), ch.match, maxCount)
	ch.Count, ch.More = len(list), partial || len(list) == maxCount
	ch.Tasks = tasksGrid(list[:min(len(list), preview)])
	v.Body = ch
	return err
}

// change changes them, until none are left or its time is over.
func (c *Console) change(r *http.Request, v *view) error {
	v.Title, v.Page = "Change tasks", "act"
	ch, err := chosen(r)
	if err != nil {
		return err
	}
	v.Title = ch.Verb + " tasks"
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		return ch.do(c.Queue, ctx, match, limit)
	}
	ch.Changed, ch.Missed, err = inspect.Change(r.Context(), c.found(r.Context(), ch.match, &ch.More), ch.match, do, func(int) {})
	c.Log.InfoContext(r.Context(), "tasks were changed by hand", "by", v.Caller.Name, "do", ch.Do, "tasks", ch.Changed,
		"id", ch.Asked.ID, "key", ch.Asked.Key, "type", ch.Asked.Type, "queue", ch.Asked.Queue, "state", ch.Asked.State, "match", ch.Asked.Error)
	ch.Done, v.Body = true, &ch
	if ch.Unfinished = errors.Is(err, context.DeadlineExceeded) || r.Context().Err() != nil; ch.Unfinished && ch.Changed > 0 {
		return nil
	}
	return err
}

// found returns the tasks that match, a batch at a time, and none twice; at the end, more says whether there may be
// others: behind the rows that were looked at, or behind a batch that could not be changed.
func (c *Console) found(ctx context.Context, match queue.Filter, more *bool) iter.Seq2[[]queue.Record, error] {
	return func(yield func([]queue.Record, error) bool) {
		seen := make(map[uint64]bool)
		for {
			if ctx.Err() != nil {
				yield(nil, context.DeadlineExceeded)
				return
			}
			bounded, cancel := context.WithTimeout(ctx, askTimeout)
			list, partial, err := c.Queue.Search(bounded, match, inspect.Batch)
			cancel()
			if err != nil {
				yield(nil, err)
				return
			}
			*more = partial || len(list) == inspect.Batch
			list = slices.DeleteFunc(list, func(r queue.Record) bool {
				was := seen[r.ID]
				seen[r.ID] = true
				return was
			})
			if len(list) == 0 || !yield(list, nil) {
				return
			}
		}
	}
}
