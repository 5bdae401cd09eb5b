package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// deed is a change of tasks in some states.
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
	Tasks grid // of the first

	States         string // which a task is in
	Count, Changed int
	More           bool // than Count, or than were changed
	Done           bool
	match          queue.Filter
}

// preview is how many tasks are shown, of at most maxCount that are counted.
const (
	preview  = 10
	maxCount = 1000
)

// chosen reads a change. As the command does, it takes dead tasks unless the form names a state.
func chosen(r *http.Request, v *view) (ch *changing, err error) {
	v.Title, v.Page = "Change tasks", "act"
	d, known := deeds[r.FormValue("do")]
	if !known {
		return nil, fault("want do=retry or do=discard")
	}
	v.Title = d.Verb + " tasks"
	ch = &changing{deed: d, Do: r.FormValue("do"), Asked: askedBy(r)}
	if ch.match, err = filter(r); err != nil {
		return nil, err
	}
	switch {
	case !narrowed(ch.match):
		return nil, fault("say which tasks: by id, key, type, queue or error; a state alone is not enough")
	case len(ch.match.IDs) > 0 && len(ch.match.States) == 0:
		ch.match.States = d.possible
	case len(ch.match.States) == 0:
		ch.match.States = []queue.State{queue.Dead}
		ch.Asked.State = string(queue.Dead)
	case !slices.Contains(d.possible, ch.match.States[0]):
		return nil, fault("tasks that are " + string(ch.match.States[0]) + " cannot be " + d.Past)
	}
	var words []string
	for _, state := range ch.match.States {
		words = append(words, string(state))
	}
	ch.States, v.Body = strings.Join(words, ", "), ch
	return ch, nil
}

// showChange shows the tasks that a change would take. It changes nothing.
func (c *Console) showChange(r *http.Request, v *view) error {
	ch, err := chosen(r, v)
	if err != nil {
		return err
	}
	list, partial, err := c.Queue.Search(r.Context(), ch.match, maxCount)
	ch.Count, ch.More = len(list), partial || len(list) == maxCount
	ch.Tasks = tasksGrid(list[:min(len(list), preview)])
	return err
}

// change changes as many as it counts, [inspect.Batch] in a transaction. It shows the number in any case.
func (c *Console) change(r *http.Request, v *view) error {
	ch, err := chosen(r, v)
	if err != nil {
		return err
	}
	list, partial, err := c.Queue.Search(r.Context(), ch.match, maxCount)
	if err != nil {
		return err
	}
	ch.Done, ch.More = true, partial || len(list) == maxCount
	pages := func(yield func([]queue.Record, error) bool) {
		for page := range slices.Chunk(list, inspect.Batch) {
			if r.Context().Err() != nil || !yield(page, nil) {
				ch.More = true
				return
			}
		}
	}
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		return ch.do(c.Queue, ctx, match, limit)
	}
	ch.Changed, _, err = inspect.Change(r.Context(), pages, ch.match, do, func(int) {})
	a := ch.Asked
	c.Log.InfoContext(r.Context(), "tasks were changed by hand", "by", v.Caller.Name, "do", ch.Do, "tasks", ch.Changed,
		"id", a.ID, "key", a.Key, "type", a.Type, "queue", a.Queue, "state", a.State, "match", a.Error)
	return err
}

// hold pauses a queue, or resumes it, and goes back to the queues.
func (c *Console) hold(r *http.Request, v *view) (err error) {
	v.Title, v.Page = "Queues", "queues"
	name, do := r.FormValue("queue"), r.FormValue("do")
	switch do {
	case "pause":
		_, err = c.Queue.Pause(r.Context(), name)
	case "resume":
		_, err = c.Queue.Resume(r.Context(), name)
	default:
		return fault("want do=pause or do=resume")
	}
	if err == nil {
		c.Log.InfoContext(r.Context(), "a queue was changed by hand", "by", v.Caller.Name, "do", do, "queue", name)
		v.status, v.Next = http.StatusSeeOther, "/console/"
	}
	return err
}
