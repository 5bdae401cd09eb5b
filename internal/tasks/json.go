package tasks

import (
	"encoding/json"
	"strconv"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// rawTask is a task as it stands in the body, with its place for messages: ""
// for a single task, tasks[3] in a batch.
type rawTask struct {
	place string
	value json.RawMessage
}

// parser collects the faults of one input.
type parser struct {
	Faults

	root string // what the input is called as a whole, in messages
}

// The JSON of a task is read strictly: a misspelt field that is silently ignored is a
// task that never does what its sender meant. So unknown, repeated and misplaced fields
// are refused, and all faults are named at once.

// ParseBody reads the body of a request: one task, or {"tasks":[…]} with 1 to
// most of them. When anything is wrong anywhere it returns no task, and an error
// that wraps [ErrMalformed] or is an [InvalidError].
//
// A member may be named as its own contact. Whether such a row exists is for
// MySQL to say, like that of any other pair.
func ParseBody(body []byte, most int) ([]queue.New, error) {
	root, err := parse(body)
	if err != nil {
		return nil, err
	}
	p := &parser{root: "body"}
	list := p.taskList(root, most)
	batch := make([]queue.New, 0, len(list))
	for _, raw := range list {
		batch = append(batch, p.task(raw))
	}
	if len(p.Faults) > 0 {
		return nil, &InvalidError{p.Faults}
	}
	return batch, nil
}

// ParseLine reads one task, as a line of a file has it. Its errors are those of
// [ParseBody].
func ParseLine(line []byte) (queue.New, error) {
	root, err := parse(line)
	if err != nil {
		return queue.New{}, err
	}
	p := &parser{root: "line"}
	task := p.task(rawTask{"", root})
	if len(p.Faults) > 0 {
		return queue.New{}, &InvalidError{p.Faults}
	}
	return task, nil
}

// taskList reads the two forms of a body.
func (p *parser) taskList(root json.RawMessage, most int) []rawTask {
	top, ok := p.object("", root)
	if !ok {
		return nil
	}
	batch, ok := top.get("tasks")
	if !ok {
		return []rawTask{{"", root}}
	}
	for _, m := range top {
		if m.name != "tasks" {
			p.Addf(m.name, `unknown field beside "tasks"`)
		}
	}
	return p.batch(batch, most)
}

func (p *parser) batch(value json.RawMessage, most int) []rawTask {
	var items []json.RawMessage
	switch err := json.Unmarshal(value, &items); {
	case err != nil || items == nil:
		p.Addf("tasks", "want an array of tasks, got %s", typeName(value))
		return nil
	case len(items) == 0:
		p.Addf("tasks", "is empty: want 1 to %d tasks", most)
	case len(items) > most:
		p.Addf("tasks", "holds %d tasks: want at most %d; send several requests", len(items), most)
		return nil
	}
	list := make([]rawTask, len(items))
	for i, item := range items {
		list[i] = rawTask{"tasks[" + strconv.Itoa(i) + "]", item}
	}
	return list
}

// task reads one task. What it returns counts only if there are no faults.
func (p *parser) task(raw rawTask) queue.New {
	o, ok := p.object(raw.place, raw.value)
	if !ok {
		return queue.New{}
	}
	for _, m := range o {
		if m.name != "type" && m.name != "user_id" && m.name != "contact_id" {
			p.Addf(p.at(raw.place, m.name), "unknown field: want type, user_id and contact_id")
		}
	}
	t := p.taskType(raw.place, o)
	user := p.memberID(raw.place, o, "user_id", true)
	k, known := produced(t)
	contact := p.memberID(raw.place, o, "contact_id", k.TakesContact)
	if _, given := o.get("contact_id"); given && known && !k.TakesContact {
		p.Addf(p.at(raw.place, "contact_id"), "%s takes no contact", t)
	}
	if len(p.Faults) > 0 {
		return queue.New{}
	}
	task, err := Parse(t, user, contact)
	if err != nil {
		p.Addf(p.at(raw.place, ""), "%v", err)
	}
	return task
}

func (p *parser) taskType(place string, o object) string {
	want := "want " + orList(Produced())
	field := p.at(place, "type")
	value, ok := o.get("type")
	if !ok {
		p.Addf(field, "is missing: %s", want)
		return ""
	}
	var t *string
	if err := json.Unmarshal(value, &t); err != nil || t == nil {
		p.Addf(field, "%s, got %s", want, typeName(value))
		return ""
	}
	if _, known := produced(*t); !known {
		p.Addf(field, "unknown type %q: %s", Clip(*t), want)
	}
	return *t
}

func (p *parser) memberID(place string, o object, name string, required bool) member.ID {
	value, ok := o.get(name)
	if !ok {
		if required {
			p.Addf(p.at(place, name), "is missing: want a member id")
		}
		return 0
	}
	if kind := value[0]; kind != '"' && kind != '-' && (kind < '0' || kind > '9') {
		p.Addf(p.at(place, name), "want a member id as a string or number, got %s", typeName(value))
		return 0
	}
	var id member.ID
	if err := id.UnmarshalJSON(value); err != nil {
		p.Addf(p.at(place, name), "%v", err)
	}
	return id
}

// at names a field by its place; with neither, it is the input as a whole.
func (p *parser) at(place, name string) string {
	switch {
	case place == "" && name == "":
		return p.root
	case place == "":
		return name
	case name == "":
		return place
	}
	return place + "." + name
}
