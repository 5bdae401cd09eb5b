package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// possible are the states of the tasks that a change by hand takes.
var possible = map[string][]queue.State{
	"retry":   {queue.Dead, queue.Scheduled},
	"discard": {queue.Dead, queue.Scheduled, queue.Waiting},
}

// canBe reports whether a form may change a task in a state.
func canBe(do string, state queue.State) bool { return slices.Contains(possible[do], state) }

// maxChanged bounds the tasks of a change.
const maxChanged = 1000

// change retries or discards the tasks of a form, [inspect.Batch] in a transaction, and shows their number.
func (c *Console) change(r *http.Request, v *view) error {
	v.Title, v.Page = "Change tasks", "act"
	match, err := filter(r)
	if err != nil {
		return err
	}
	do, change := r.FormValue("do"), c.Queue.Retry
	switch {
	case possible[do] == nil:
		return fault("want do=retry or do=discard")
	case !narrowed(match):
		return fault("say which tasks: by id, key, type, queue or error; a state alone is not enough")
	case len(match.IDs) > 0:
		match.States = possible[do]
	case len(match.States) == 0 || !canBe(do, match.States[0]):
		return fault(fmt.Sprintf("want the state of the tasks, one of %v", possible[do]))
	}
	if do == "discard" {
		if change = c.Queue.Discard; r.FormValue("sure") == "" {
			return fault("this deletes tasks for good: tick the box beside the button")
		}
	}
	list, partial, err := c.Queue.Search(r.Context(), match, maxChanged)
	if err != nil {
		return err
	}
	match.IDs = nil
	for _, task := range list {
		match.IDs = append(match.IDs, task.ID)
	}
	changed := 0
	if len(list) > 0 {
		changed, _, err = inspect.Change(r.Context(), inspect.Pages(r.Context(), c.Queue, match, inspect.Batch), match, change)
	}
	late := errors.Is(err, context.DeadlineExceeded) // the number is true nevertheless
	c.Log.InfoContext(r.Context(), "tasks were changed by hand", "by", v.Caller.Name, "do", do, "tasks", changed,
		"id", r.FormValue("id"), "key", r.FormValue("key"), "type", r.FormValue("type"),
		"queue", r.FormValue("queue"), "state", r.FormValue("state"), "match", r.FormValue("error"))
	v.Body = struct {
		Do, Past string
		Changed  int
		More     bool // than were changed
	}{do, map[string]string{"retry": "retried", "discard": "discarded"}[do], changed, partial || late || len(list) == maxChanged}
	if late {
		return nil
	}
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
