package api

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// takesContact says of every type that a client may enqueue whether it is about
// a contact too.
var takesContact = map[tasks.Type]bool{
	tasks.AddContact:    true,
	tasks.RemoveContact: true,
	tasks.Upload:        false,
}

// rawTask is a task as it stands in the body, with its place for messages: ""
// for a single task, tasks[3] in a batch.
type rawTask struct {
	place string
	value json.RawMessage
}

// parseTasks reads a body: one task, or {"tasks":[…]} with 1 to most of them.
// When anything is wrong anywhere it returns no task, but all faults.
//
// A member may be named as its own contact. Whether such a row exists is for
// MySQL to say, like that of any other pair.
func parseTasks(body []byte, most int) ([]tasks.New, error) {
	root, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	var f faults
	list := f.taskList(root, most)
	batch := make([]tasks.New, 0, len(list))
	for _, raw := range list {
		batch = append(batch, f.task(raw))
	}
	if len(f) > 0 {
		return nil, refuseFields(invalidTask, f)
	}
	return batch, nil
}

// taskList tells the two forms of a body apart.
func (f *faults) taskList(root json.RawMessage, most int) []rawTask {
	top, ok := f.object("", root)
	if !ok {
		return nil
	}
	batch, ok := top.get("tasks")
	if !ok {
		return []rawTask{{"", root}}
	}
	for _, m := range top {
		if m.name != "tasks" {
			f.addf(m.name, `unknown field beside "tasks"`)
		}
	}
	return f.batch(batch, most)
}

func (f *faults) batch(value json.RawMessage, most int) []rawTask {
	var items []json.RawMessage
	switch err := json.Unmarshal(value, &items); {
	case err != nil || items == nil:
		f.addf("tasks", "want an array of tasks, got %s", typeName(value))
		return nil
	case len(items) == 0:
		f.addf("tasks", "is empty: want 1 to %d tasks", most)
	case len(items) > most:
		f.addf("tasks", "holds %d tasks: want at most %d; send several requests", len(items), most)
		return nil
	}
	list := make([]rawTask, len(items))
	for i, item := range items {
		list[i] = rawTask{"tasks[" + strconv.Itoa(i) + "]", item}
	}
	return list
}

// task reads one task. What it returns counts only if there are no faults.
func (f *faults) task(raw rawTask) tasks.New {
	o, ok := f.object(raw.place, raw.value)
	if !ok {
		return tasks.New{}
	}
	for _, m := range o {
		if m.name != "type" && m.name != "user_id" && m.name != "contact_id" {
			f.addf(join(raw.place, m.name), "unknown field: want type, user_id and contact_id")
		}
	}
	t := f.taskType(raw.place, o)
	user := f.memberID(raw.place, o, "user_id", true)
	takes, known := takesContact[t]
	contact := f.memberID(raw.place, o, "contact_id", takes)
	if _, given := o.get("contact_id"); given && known && !takes {
		f.addf(join(raw.place, "contact_id"), "%s takes no contact", t)
	}
	if len(*f) > 0 {
		return tasks.New{}
	}
	task, err := tasks.Parse(t, user, contact)
	if err != nil {
		f.addf(join(raw.place, ""), "%v", err)
	}
	return task
}

func (f *faults) taskType(place string, o object) tasks.Type {
	const want = "want add_contact, remove_contact or upload"
	field := join(place, "type")
	value, ok := o.get("type")
	if !ok {
		f.addf(field, "is missing: "+want)
		return ""
	}
	var t *tasks.Type
	if err := json.Unmarshal(value, &t); err != nil || t == nil {
		f.addf(field, "%s, got %s", want, typeName(value))
		return ""
	}
	if _, known := takesContact[*t]; !known {
		f.addf(field, "unknown type %q: %s", clip(string(*t)), want)
	}
	return *t
}

func (f *faults) memberID(place string, o object, name string, required bool) member.ID {
	value, ok := o.get(name)
	if !ok {
		if required {
			f.addf(join(place, name), "is missing: want a member id")
		}
		return 0
	}
	if kind := value[0]; kind != '"' && kind != '-' && (kind < '0' || kind > '9') {
		f.addf(join(place, name), "want a member id as a string or number, got %s", typeName(value))
		return 0
	}
	var id member.ID
	if err := id.UnmarshalJSON(value); err != nil {
		f.addf(join(place, name), "%v", err)
	}
	return id
}

// join names a field by its place; with neither, it is the body as a whole.
func join(place, name string) string {
	switch {
	case place == "" && name == "":
		return "body"
	case place == "":
		return name
	case name == "":
		return place
	}
	return fmt.Sprintf("%s.%s", place, name)
}
