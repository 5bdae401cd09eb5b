package tasks

import (
	"encoding/json"

	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// ParseBody reads the body of a request: a task, or {"tasks":[…]} with 1 to
// most of them. When anything is wrong anywhere it returns no task, and an error
// that wraps [strictjson.ErrMalformed] or is a [strictjson.InvalidError].
//
// A member may be named as its own contact: MySQL says whether there is a row.
func ParseBody(body []byte, most int) ([]queue.New, error) {
	root, err := strictjson.Parse(body)
	if err != nil {
		return nil, err
	}
	r := &strictjson.Reader{Root: "body"}
	batch := parseTasks(r, root, most)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return batch, nil
}

// ParseLine reads a task, as a line of a file has it. It fails as [ParseBody] does.
func ParseLine(line []byte) (queue.New, error) {
	root, err := strictjson.Parse(line)
	if err != nil {
		return queue.New{}, err
	}
	r := &strictjson.Reader{Root: "line"}
	task := parseTask(r, "", root)
	if err := r.Err(); err != nil {
		return queue.New{}, err
	}
	return task, nil
}

// parseTasks reads the two forms of a body. Its result counts only if there are no faults.
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

// parseTask reads a task. Its result counts only if there are no faults.
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
	var task queue.New
	switch {
	case k.Takes != nil:
		if value, ok := o.Need(k.Takes.Name, k.Takes.Want); ok {
			task = k.Takes.Task(k, r, r.At(place, k.Takes.Name), user, value)
		}
	case known:
		task = k.task(user, struct{}{})
	}
	if len(r.Faults) > 0 {
		return queue.New{}
	}
	return task
}

// parseType reads the kind of a task.
func parseType(o strictjson.Object) string {
	want := strictjson.List(Produced(), "or")
	if _, ok := o.Need("type", want); !ok {
		return ""
	}
	t, ok := o.String("type", want)
	if !ok {
		return ""
	}
	if _, known := produced(t); !known {
		o.Addf("type", "unknown type %q: want %s", strictjson.Clip(t), want)
	}
	return t
}
