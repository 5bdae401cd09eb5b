package tasks

import (
	"encoding/json"
	"slices"
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
	t := p.taskType(raw.place, o)
	k, known := produced(t)
	var user member.ID
	if value, ok := o.get("user_id"); ok {
		user = p.memberID(p.at(raw.place, "user_id"), value)
	} else {
		p.Addf(p.at(raw.place, "user_id"), "is missing: want a member id")
	}
	payload := json.RawMessage("{}")
	if k.Takes != nil {
		at := p.at(raw.place, k.Takes.Name)
		if value, ok := o.get(k.Takes.Name); ok {
			payload = k.Takes.Payload(p, at, value)
		} else {
			p.Addf(at, "is missing: %s takes the %s", t, k.Takes.What)
		}
	}
	p.otherFields(raw.place, o, k, known)
	if len(p.Faults) > 0 {
		return queue.New{}
	}
	task, err := k.withPayload(user, payload)
	if err != nil {
		p.Addf(p.at(raw.place, ""), "%v", err)
	}
	return task
}

// otherFields refuses the fields that the kind does not take.
func (p *parser) otherFields(place string, o object, k kind, known bool) {
	names := []string{}
	for _, f := range fields() {
		names = append(names, f.Name)
		if _, given := o.get(f.Name); given && known && f != k.Takes {
			p.Addf(p.at(place, f.Name), "%s takes no %s", k.Name, f.What)
		}
	}
	for _, m := range o {
		if m.name != "type" && m.name != "user_id" && !slices.Contains(names, m.name) {
			p.Addf(p.at(place, m.name), "unknown field: want type, user_id and %s", orList(names))
		}
	}
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

func (p *parser) memberID(at string, value json.RawMessage) member.ID {
	if kind := value[0]; kind != '"' && kind != '-' && (kind < '0' || kind > '9') {
		p.Addf(at, "want a member id as a string or number, got %s", typeName(value))
		return 0
	}
	var id member.ID
	if err := id.UnmarshalJSON(value); err != nil {
		p.Addf(at, "%v", err)
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
