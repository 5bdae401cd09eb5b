package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Type says what a task asks for.
type Type string

// The types that a producer may enqueue.
const (
	AddContact    Type = "add_contact"    // look again at (subject, contact): it may have been added
	RemoveContact Type = "remove_contact" // look again at (subject, contact): it may have been removed
	Upload        Type = "upload"         // look again at the subject, who may have uploaded
	Refill        Type = "refill"         // read the subject's most recent contacts into its set; delete the set of who is no member
)

// FanOut is the type that only activityd enqueues: tell the subject's followers, from
// one on, of its last upload.
const FanOut Type = "fan_out"

// handled are the types that have a handler.
func handled() []Type { return []Type{AddContact, RemoveContact, Upload, FanOut, Refill} }

// The queues. Each has workers of its own, so that the parts of a large fan-out
// and the refills after a lost Redis never stand before contact changes.
const (
	QueueDefault = "default"
	QueueFanOut  = "fan_out"
	QueueRefill  = "refill"
)

// Args are the arguments of a task beyond its subject, stored as JSON.
type Args struct {
	Contact member.ID `json:"contact_id,omitzero"` // add_contact, remove_contact
	After   member.ID `json:"after,omitzero"`      // fan_out: the followers above this id
	Since   int64     `json:"since,omitzero"`      // fan_out: when the upload's task was enqueued, unix milliseconds
	Told    int       `json:"told,omitzero"`       // fan_out: how many followers the parts before it told
}

// New is a task that is to be enqueued. Make one with [NewAddContact],
// [NewRemoveContact], [NewUpload], [NewFanOut] or [NewRefill].
//
// Its JSON is what [Queue.EnqueueOnce] compares: with other names, a client that
// repeats itself over an update of activityd would be refused.
type New struct {
	Type      Type      `json:"type"`
	Subject   member.ID `json:"subject"`
	Args      Args      `json:"args"`
	Queue     string    `json:"queue"`
	DedupeKey string    `json:"dedupe_key"` // of tasks with one key, at most one waits to be started

	Priority int           `json:"priority,omitzero"` // the lower the more urgent; see [Normal]
	Delay    time.Duration `json:"delay,omitzero"`    // it starts no sooner
	Life     time.Duration `json:"life,omitzero"`     // it is dropped if it was not started by then; 0: never
}

// Priorities. Any number between -32768 and 32767 will do.
const (
	Urgent = -10
	Normal = 0
	Idle   = 10
)

// Task is a task as it was claimed: it is this process's work until its lease
// ends.
type Task struct {
	ID          uint64
	Type        Type
	Subject     member.ID
	RawArgs     json.RawMessage
	Queue       string
	Priority    int
	Attempts    int // this one included
	MaxAttempts int
	Lease       string // the claim that it belongs to; no other may finish it
	Expires     bool   // it may be dropped when it is not started in time

	Created time.Time     // by the database's clock, as all that follows
	Waited  time.Duration // from when it was enqueued, or became due, to the claim
	Claimed time.Time
}

// ErrInvalid is wrapped by the errors for a task that cannot be understood.
var ErrInvalid = errors.New("invalid task")

// NewAddContact asks to look at (user, contact) after contact was added.
func NewAddContact(user, contact member.ID) New { return newPair(AddContact, user, contact) }

// NewRemoveContact asks to look at (user, contact) after contact was removed.
func NewRemoveContact(user, contact member.ID) New { return newPair(RemoveContact, user, contact) }

// newPair gives both types one dedupe key: they are the same work seen from two
// ends, so either absorbs the other.
func newPair(t Type, user, contact member.ID) New {
	return New{
		Type: t, Subject: user, Args: Args{Contact: contact}, Queue: QueueDefault,
		DedupeKey: fmt.Sprintf("pair:%d:%d", user, contact),
	}
}

// NewUpload asks to tell the followers of user about its last upload.
func NewUpload(user member.ID) New {
	return New{Type: Upload, Subject: user, Queue: QueueDefault, DedupeKey: fmt.Sprintf("upload:%d", user)}
}

// NewFanOut asks to tell the followers of user whose id is above after.
func NewFanOut(user, after member.ID) New {
	return New{
		Type: FanOut, Subject: user, Args: Args{After: after}, Queue: QueueFanOut,
		DedupeKey: fmt.Sprintf("fan_out:%d:%d", user, after),
	}
}

// NewRefill asks to read the most recent contacts of user into its set, which is deleted
// when there are none, or user is no member.
func NewRefill(user member.ID) New {
	return New{Type: Refill, Subject: user, Queue: QueueRefill, DedupeKey: fmt.Sprintf("refill:%d", user)}
}

// Parse makes a task from the words a producer uses: an unknown type, and a
// contact that is missing or out of place, are refused with an error that wraps
// [ErrInvalid].
func Parse(t Type, user, contact member.ID) (New, error) {
	switch {
	case user == 0:
		return New{}, fmt.Errorf("%w: %s: the user is missing", ErrInvalid, t)
	case t == AddContact && contact != 0:
		return NewAddContact(user, contact), nil
	case t == RemoveContact && contact != 0:
		return NewRemoveContact(user, contact), nil
	case t == AddContact || t == RemoveContact:
		return New{}, fmt.Errorf("%w: %s: the contact is missing", ErrInvalid, t)
	case t == Upload && contact == 0:
		return NewUpload(user), nil
	case t == Refill && contact == 0:
		return NewRefill(user), nil
	case t == Upload || t == Refill:
		return New{}, fmt.Errorf("%w: %s: takes no contact", ErrInvalid, t)
	}
	return New{}, fmt.Errorf("%w: unknown type %q: want %s, %s, %s or %s", ErrInvalid, t, AddContact, RemoveContact, Upload, Refill)
}

// MostArgs is how many bytes the arguments of a task may have. Those of our own
// types have a tenth of that; a claim reads no more, so that what it holds is bounded.
const MostArgs = 4096

// Args decodes the task's arguments. An error is permanent.
func (t Task) Args() (Args, error) {
	var a Args
	if len(t.RawArgs) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(t.RawArgs, &a); err != nil {
		shown := t.RawArgs[:min(len(t.RawArgs), 100)]
		return Args{}, Permanent(fmt.Errorf("%w: arguments of %s task %d: %w: %s", ErrInvalid, t.Type, t.ID, err, shown))
	}
	return a, nil
}
