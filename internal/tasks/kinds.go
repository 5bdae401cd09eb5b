package tasks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// kinds lists the kinds of task. A new kind is a file of its own, with a value of type
// kind and a handler, and a line here: the queue, the API, the command line, the metrics
// and the audit learn it from this list.
var kinds = []kind{addContact, removeContact, upload, fanOut, fanOutAgain, broadcasting, broadcastLook, refill, refillRange, checkRange, notify, target, deliver, burst}

// kind is a kind of task of this site. It alone knows the form of its payload.
type kind struct {
	Name string
	// Workers are the default workers of the queue of its tasks. Of the kinds that share a queue, the first counts.
	Workers queue.Workers
	// Ordered tasks of a member run one after the other within a queue.
	Ordered bool
	// DedupeKey returns the key that tasks of the same work share. An error says that the
	// payload is not of this kind.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Produced means that producers may enqueue it; else only activityd does.
	Produced bool
	// Takes is the field that its producers name beside the member; nil: none.
	Takes *field
	// Changes names the sets that it may change: while it is not finished, they may rightly
	// be behind.
	Changes Reach
	// Handler returns the handler. Kinds of a Group have equal handlers, and their tasks are handled together.
	Handler func(w work) queue.Handler
	Group   string
}

// Reach names the sets that a kind of task may change.
type Reach int

// The reaches.
const (
	NoSet        Reach = iota
	OwnSet             // of the member that the task is about
	FollowerSets       // of the followers of the member
)

// field is a member of the JSON of a task, beside its type and its user_id.
type field struct {
	Name string // of JSON, as in contact_id
	What string // for messages, as in contact
	Want string // a description, for messages
	// Task makes a task of the kind from the value of the field. It adds faults to r, under the name at; then the task
	// does not count.
	Task func(k kind, r *strictjson.Reader, at string, of member.ID, value json.RawMessage) queue.New
}

// fields returns the fields of all kinds that producers may enqueue.
func fields() (list []*field) {
	for _, k := range kinds {
		if k.Produced && k.Takes != nil && !slices.Contains(list, k.Takes) {
			list = append(list, k.Takes)
		}
	}
	return list
}

// The queues. Each has workers of its own, so that the parts of a large fan-out
// and the refills after a lost Redis never stand before contact changes, and a page that waits for a node never before a fan-out.
const (
	QueueDefault     = queue.DefaultQueue
	QueueFanOut      = "fan_out"
	QueueFanOutAgain = "fan_out_again"
	QueueRefill      = "refill"
	QueueBackfill    = "backfill" // to pause it pauses every backfill
	QueueCheck       = "check"
)

// Kinds returns the kinds of task for the queue and its workers.
func Kinds() queue.Kinds {
	list := make(queue.Kinds, len(kinds))
	for i, k := range kinds {
		list[i] = queue.Kind{Name: k.Name, Queue: k.Workers.Queue, Ordered: k.Ordered, DedupeKey: k.DedupeKey, Group: k.Group}
	}
	return list
}

// task returns a task of the kind, whose payload is its arguments as JSON.
func (k kind) task(of member.ID, args any) queue.New {
	payload, err := json.Marshal(args)
	var n queue.New
	if err == nil {
		n, err = k.withPayload(of, payload)
	}
	if err != nil {
		panic(fmt.Sprintf("tasks: arguments of %s: %v", k.Name, err)) // numbers always can be marshalled
	}
	return n
}

func (k kind) withPayload(of member.ID, payload json.RawMessage) (queue.New, error) {
	key, err := k.DedupeKey(uint64(of), payload)
	return queue.New{Kind: k.Name, Key: uint64(of), Payload: payload, Queue: k.Workers.Queue, DedupeKey: key}, err
}

// Produced returns the names of the kinds that producers may enqueue.
func Produced() []string { return names(func(k kind) bool { return k.Produced }) }

// Changing returns the names of the kinds with a reach.
func Changing(r Reach) []string { return names(func(k kind) bool { return k.Changes == r }) }

// ChangingSets returns the names of the kinds that may change sets: while a task of them is due, sets may be behind.
func ChangingSets() []string { return names(func(k kind) bool { return k.Changes != NoSet }) }

func names(fits func(kind) bool) (list []string) {
	for _, k := range kinds {
		if fits(k) {
			list = append(list, k.Name)
		}
	}
	return list
}

// produced returns the kind of that name, if producers may enqueue it.
func produced(name string) (kind, bool) {
	for _, k := range kinds {
		if k.Name == name && k.Produced {
			return k, true
		}
	}
	return kind{}, false
}

// Parse makes a task from the words a producer uses: an unknown kind, and a
// contact that is missing or out of place, are refused with an error that wraps
// [queue.ErrInvalid]. So is a kind whose payload no words can say: see [ParseLine].
func Parse(name string, of, contact member.ID) (queue.New, error) {
	k, known := produced(name)
	switch {
	case of == 0:
		return queue.New{}, fmt.Errorf("%w: %s: the member is missing", queue.ErrInvalid, name)
	case !known:
		return queue.New{}, fmt.Errorf("%w: unknown type %q: want %s", queue.ErrInvalid, name, strictjson.List(Produced(), "or"))
	case !k.byWords():
		return queue.New{}, fmt.Errorf("%w: %s: takes an %s, as JSON", queue.ErrInvalid, name, k.Takes.What)
	case k.Takes == contactField && contact == 0:
		return queue.New{}, fmt.Errorf("%w: %s: the contact is missing", queue.ErrInvalid, name)
	case k.Takes != contactField && contact != 0:
		return queue.New{}, fmt.Errorf("%w: %s: takes no contact", queue.ErrInvalid, name)
	}
	return k.task(of, ContactArgs{Contact: contact}), nil
}

// byWords reports whether a member, or two, are all that the kind takes.
func (k kind) byWords() bool { return k.Takes == nil || k.Takes == contactField }

// Usage describes the kinds that producers may enqueue, and their arguments.
func Usage() string {
	var pairs, others []string
	for _, k := range kinds {
		switch {
		case !k.Produced || !k.byWords():
		case k.Takes == contactField:
			pairs = append(pairs, k.Name)
		default:
			others = append(others, k.Name)
		}
	}
	return strictjson.List(pairs, "or") + ", with MEMBER and CONTACT, " + strictjson.List(others, "or") + ", with MEMBER,\nor " +
		notify.Name + ", with MEMBER, the actor, and EVENT, as JSON"
}

// ArgsOf decodes the payload of a task of a kind whose arguments are A. An error is
// permanent.
func ArgsOf[A any](t queue.Task) (A, error) {
	a, err := decode[A](t.Payload)
	if err != nil {
		shown := t.Payload[:min(len(t.Payload), 100)]
		var none A
		return none, queue.Permanent(fmt.Errorf("%w: arguments of %s task %d: %w: %s", queue.ErrInvalid, t.Kind, t.ID, err, shown))
	}
	return a, nil
}

func decode[A any](payload json.RawMessage) (a A, err error) {
	if len(payload) > 0 {
		err = json.Unmarshal(payload, &a)
	}
	return a, err
}
