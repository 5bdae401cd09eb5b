package tasks

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/strictjson"
)

// kinds lists the kinds of task. A new one is a file of its own, with a value of type
// kind and a handler, and a line here: the queue, the API, the command line, the metrics
// and the audit learn it from this list.
var kinds = []kind{addContact, removeContact, upload, fanOut, refill}

// kind is a kind of task of this site.
type kind struct {
	Name  string
	Queue string
	// Order is the space within which tasks of a member run one at a time; "": side by
	// side.
	Order string
	// DedupeKey returns what tasks that are the same work share.
	DedupeKey func(of member.ID, a Args) string
	// Produced means that producers may enqueue it; the others only activityd does.
	Produced bool
	// TakesContact means that its producers name a contact, too.
	TakesContact bool
	// Changes says which sets it may change: while it is not finished, they may rightly
	// be behind.
	Changes Reach
	// Handler returns what does the work. Kinds with equal handlers are handled together.
	Handler func(w work) queue.Handler
}

// Reach says which sets a kind of task may change.
type Reach int

// The reaches.
const (
	NoSet        Reach = iota
	OwnSet             // that of the member whom the task is about
	FollowerSets       // those of the followers of the member
)

// The queues. Each has workers of its own, so that the parts of a large fan-out
// and the refills after a lost Redis never stand before contact changes.
const (
	QueueDefault = queue.DefaultQueue
	QueueFanOut  = "fan_out"
	QueueRefill  = "refill"
)

// The spaces of ordering keys.
const (
	orderSet      = "set"      // what is written into the member's set
	orderUploader = "uploader" // the beginning of the member's fan-outs
)

func init() {
	for _, k := range kinds {
		k.register()
	}
}

func (k kind) register() {
	queue.Register(queue.Kind{Name: k.Name, Queue: k.Queue, Order: k.Order, DedupeKey: k.dedupeKey, Away: isAway})
}

func (k kind) dedupeKey(of uint64, payload json.RawMessage) (string, error) {
	a, err := decode(payload)
	return k.DedupeKey(member.ID(of), a), err
}

// task returns a task of the kind.
func (k kind) task(of member.ID, a Args) queue.New {
	raw, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("tasks: Args cannot be marshalled: %v", err)) // numbers always can
	}
	return queue.New{Kind: k.Name, Key: uint64(of), Payload: raw, Queue: k.Queue, DedupeKey: k.DedupeKey(of, a)}
}

// Produced returns the names of the kinds that producers may enqueue.
func Produced() []string { return names(func(k kind) bool { return k.Produced }) }

// Changing returns the names of the kinds with a reach.
func Changing(r Reach) []string { return names(func(k kind) bool { return k.Changes == r }) }

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
// [queue.ErrInvalid].
func Parse(name string, of, contact member.ID) (queue.New, error) {
	k, known := produced(name)
	switch {
	case of == 0:
		return queue.New{}, fmt.Errorf("%w: %s: the member is missing", queue.ErrInvalid, name)
	case !known:
		return queue.New{}, fmt.Errorf("%w: unknown type %q: want %s", queue.ErrInvalid, name, strictjson.List(Produced(), "or"))
	case k.TakesContact && contact == 0:
		return queue.New{}, fmt.Errorf("%w: %s: the contact is missing", queue.ErrInvalid, name)
	case !k.TakesContact && contact != 0:
		return queue.New{}, fmt.Errorf("%w: %s: takes no contact", queue.ErrInvalid, name)
	}
	return k.task(of, Args{Contact: contact}), nil
}

// Usage says which kinds producers may enqueue, and with what.
func Usage() string {
	var pairs, others []string
	for _, name := range Produced() {
		if k, _ := produced(name); k.TakesContact {
			pairs = append(pairs, name)
		} else {
			others = append(others, name)
		}
	}
	return strictjson.List(pairs, "or") + ", with MEMBER and CONTACT, or " + strictjson.List(others, "or") + ", with MEMBER"
}

// isAway reports whether an error says that Redis cannot be used.
func isAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrSettings)
}

// Args are the arguments of a task beyond its member: its payload.
type Args struct {
	Contact member.ID `json:"contact_id,omitzero"` // add_contact, remove_contact
	After   member.ID `json:"after,omitzero"`      // fan_out: the followers above this id
	Since   int64     `json:"since,omitzero"`      // fan_out: when the upload's task was enqueued, unix milliseconds
	Told    int       `json:"told,omitzero"`       // fan_out: how many followers the parts before it updated
}

// ArgsOf decodes a task's payload. An error is permanent.
func ArgsOf(t queue.Task) (Args, error) {
	a, err := decode(t.Payload)
	if err != nil {
		shown := t.Payload[:min(len(t.Payload), 100)]
		return Args{}, queue.Permanent(fmt.Errorf("%w: arguments of %s task %d: %w: %s", queue.ErrInvalid, t.Kind, t.ID, err, shown))
	}
	return a, nil
}

func decode(payload json.RawMessage) (a Args, err error) {
	if len(payload) > 0 {
		err = json.Unmarshal(payload, &a)
	}
	return a, err
}
