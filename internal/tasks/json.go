package tasks

import (
	"encoding/json"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// ParseBody reads the body of a request: a task, or {"tasks":[…]} with 1 to
// most of them. When anything is wrong anywhere it returns no task, and an error
// that wraps [strictjson.ErrMalformed] or is a [strictjson.InvalidError].
//
// A member may be named as its own contact: MySQL says whether there is a row.
func ParseBody(body []byte, most int) ([]queue.New, error) {
	return parse(body, "body", func(r *strictjson.Reader, root json.RawMessage) []queue.New { return parseTasks(r, root, most) })
}

// ParseLine reads a task, as a line of a file has it. It fails as [ParseBody] does.
func ParseLine(line []byte) (queue.New, error) {
	return parse(line, "line", func(r *strictjson.Reader, value json.RawMessage) queue.New { return parseTask(r, "", value) })
}

// ParseNotify makes a task from a member and an event as JSON, as in the task of a producer. It fails as [ParseBody] does.
func ParseNotify(actor member.ID, event []byte) (queue.New, error) {
	return parse(event, eventField.What, func(r *strictjson.Reader, value json.RawMessage) queue.New {
		return eventField.Task(notify, r, "", actor, value)
	})
}

// parse reads a text, whose name in messages is root, by a function whose result counts only if there are no faults.
func parse[T any](text []byte, root string, read func(*strictjson.Reader, json.RawMessage) T) (none T, err error) {
	value, err := strictjson.Parse(text)
	if err != nil {
		return none, err
	}
	r := &strictjson.Reader{Root: root}
	result := read(r, value)
	if err := r.Err(); err != nil {
		return none, err
	}
	return result, nil
}

// parseTasks reads the two forms of a body.
func parseTasks(r *strictjson.Reader, root json.RawMessage, most int) []queue.New {
	top, ok := r.Object("", root)
	if !ok {
		return nil
	}
	list, ok := top.Get("tasks")
	if !ok {
		return []queue.New{parseTask(r, "", root)}
	}
	for name := range top.All() {
		if name != "tasks" {
			r.Addf(name, `unknown field beside "tasks"`)
		}
	}
	items, _ := r.Array("tasks", list, "tasks", 1, most)
	batch := make([]queue.New, len(items))
	for i, item := range items {
		batch[i] = parseTask(r, strictjson.Item("tasks", i), item)
	}
	return batch
}

// parseTask reads a task.
func parseTask(r *strictjson.Reader, place string, value json.RawMessage) queue.New {
	o, ok := r.Object(place, value)
	if !ok {
		return queue.New{}
	}
	names := []string{"type", "user_id"}
	for _, f := range fields() {
		names = append(names, f.Name)
	}
	o.Only(names...)
	t := parseType(o)
	user := o.MemberID("user_id", true)
	k, known := produced(t)
	for _, f := range fields() {
		if _, given := o.Get(f.Name); given && known && f != k.Takes {
			o.Addf(f.Name, "%s takes no %s", t, f.What)
		}
	}
	switch {
	case k.Takes != nil:
		if value, ok := o.Need(k.Takes.Name, k.Takes.Want); ok {
			return k.Takes.Task(k, r, r.At(place, k.Takes.Name), user, value)
		}
	case known:
		return k.task(user, struct{}{})
	}
	return queue.New{}
}

// parseType reads the kind of a task.
func parseType(o strictjson.Object) string {
	want := strictjson.List(Produced(), "or")
	o.Need("type", want)
	t, ok := o.String("type", want)
	if _, known := produced(t); ok && !known {
		o.Addf("type", "unknown type %q: want %s", strictjson.Clip(t), want)
	}
	return t
}
