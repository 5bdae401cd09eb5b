package tasks

import (
	"encoding/json"
	"fmt"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// The kinds that a producer may enqueue.
const (
	AddContact    = "add_contact"    // look again at (member, contact): it may have been added
	RemoveContact = "remove_contact" // look again at (member, contact): it may have been removed
	Upload        = "upload"         // look again at the member, who may have uploaded
	Refill        = "refill"         // read the member's most recent contacts into its set; delete the set if it is no member
)

// FanOut is the kind that only activityd enqueues: tell the member's followers, from
// one on, of its last upload.
const FanOut = "fan_out"

// The queues. Each has workers of its own, so that the parts of a large fan-out
// and the refills after a lost Redis never stand before contact changes.
const (
	QueueDefault = queue.DefaultQueue
	QueueFanOut  = "fan_out"
	QueueRefill  = "refill"
)

// The spaces within which tasks of the same member run in order.
const (
	ofSet      = "set"      // what is written into the member's set
	ofUploader = "uploader" // the beginning of the member's fan-outs
)

func init() {
	for _, k := range []queue.Kind{
		{Name: AddContact, Queue: QueueDefault, Order: ofSet, DedupeKey: dedupe(pairKey)},
		{Name: RemoveContact, Queue: QueueDefault, Order: ofSet, DedupeKey: dedupe(pairKey)},
		{Name: Upload, Queue: QueueDefault, Order: ofUploader, DedupeKey: dedupe(uploadKey)},
		{Name: FanOut, Queue: QueueFanOut, DedupeKey: dedupe(fanOutKey)}, // parts run side by side
		{Name: Refill, Queue: QueueRefill, Order: ofSet, DedupeKey: dedupe(refillKey)},
	} {
		k.Away = isAway
		queue.Register(k)
	}
}

// Args are the arguments of a task beyond its member: its payload.
type Args struct {
	Contact member.ID `json:"contact_id,omitzero"` // add_contact, remove_contact
	After   member.ID `json:"after,omitzero"`      // fan_out: the followers above this id
	Since   int64     `json:"since,omitzero"`      // fan_out: when the upload's task was enqueued, unix milliseconds
	Told    int       `json:"told,omitzero"`       // fan_out: how many followers the parts before it told
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

func (a Args) payload() json.RawMessage {
	raw, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("tasks: Args cannot be marshalled: %v", err)) // numbers always can
	}
	return raw
}

// dedupe makes a dedupe key of the member and the arguments.
func dedupe(key func(m member.ID, a Args) string) func(uint64, json.RawMessage) (string, error) {
	return func(of uint64, payload json.RawMessage) (string, error) {
		a, err := decode(payload)
		return key(member.ID(of), a), err
	}
}

// pairKey is the key of both kinds: they are the same work seen from two ends, so
// either absorbs the other.
func pairKey(user member.ID, a Args) string   { return fmt.Sprintf("pair:%d:%d", user, a.Contact) }
func uploadKey(user member.ID, _ Args) string { return fmt.Sprintf("upload:%d", user) }
func fanOutKey(user member.ID, a Args) string { return fmt.Sprintf("fan_out:%d:%d", user, a.After) }
func refillKey(user member.ID, _ Args) string { return fmt.Sprintf("refill:%d", user) }

// NewAddContact asks to look at (user, contact) after contact was added.
func NewAddContact(user, contact member.ID) queue.New { return newPair(AddContact, user, contact) }

// NewRemoveContact asks to look at (user, contact) after contact was removed.
func NewRemoveContact(user, contact member.ID) queue.New {
	return newPair(RemoveContact, user, contact)
}

func newPair(kind string, user, contact member.ID) queue.New {
	return newTask(kind, QueueDefault, user, Args{Contact: contact}, pairKey)
}

// NewUpload asks to tell the followers of user about its last upload.
func NewUpload(user member.ID) queue.New {
	return newTask(Upload, QueueDefault, user, Args{}, uploadKey)
}

// NewFanOut asks to tell the followers of user whose id is above after.
func NewFanOut(user, after member.ID) queue.New { return newPart(user, Args{After: after}) }

func newPart(user member.ID, a Args) queue.New {
	return newTask(FanOut, QueueFanOut, user, a, fanOutKey)
}

// NewRefill asks to read the most recent contacts of user into its set, which is deleted
// when there are none, or user is no member.
func NewRefill(user member.ID) queue.New {
	return newTask(Refill, QueueRefill, user, Args{}, refillKey)
}

func newTask(kind, to string, user member.ID, a Args, key func(member.ID, Args) string) queue.New {
	return queue.New{Kind: kind, Key: uint64(user), Payload: a.payload(), Queue: to, DedupeKey: key(user, a)}
}

// Parse makes a task from the words a producer uses: an unknown kind, and a
// contact that is missing or out of place, are refused with an error that wraps
// [queue.ErrInvalid].
func Parse(kind string, user, contact member.ID) (queue.New, error) {
	switch {
	case user == 0:
		return queue.New{}, fmt.Errorf("%w: %s: the user is missing", queue.ErrInvalid, kind)
	case kind == AddContact && contact != 0:
		return NewAddContact(user, contact), nil
	case kind == RemoveContact && contact != 0:
		return NewRemoveContact(user, contact), nil
	case kind == AddContact || kind == RemoveContact:
		return queue.New{}, fmt.Errorf("%w: %s: the contact is missing", queue.ErrInvalid, kind)
	case kind == Upload && contact == 0:
		return NewUpload(user), nil
	case kind == Refill && contact == 0:
		return NewRefill(user), nil
	case kind == Upload || kind == Refill:
		return queue.New{}, fmt.Errorf("%w: %s: takes no contact", queue.ErrInvalid, kind)
	}
	return queue.New{}, fmt.Errorf("%w: unknown type %q: want %s, %s, %s or %s", queue.ErrInvalid, kind, AddContact, RemoveContact, Upload, Refill)
}
