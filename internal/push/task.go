package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// The kinds of task. The key of Notify is the actor, that of Target and Deliver the number of the event, that of Burst the device.
const (
	Notify  = "notify"  // an event is to be sent
	Target  = "target"  // the next page of its recipients
	Deliver = "deliver" // it is to be sent to some members or devices
	Burst   = "burst"   // the events of a burst that wait are to be sent to a device
)

// The queues. Tasks of urgent events have their own, whose workers do not wait for answers to other tasks; and new events
// do not wait for the deliveries of a large event.
const (
	QueuePush    = "push"         // Notify and Target
	QueueDeliver = "push_deliver" // Deliver and Burst
	QueueUrgent  = "push_urgent"  // all kinds
)

// queueOf returns the queue of an event's tasks, unless it is urgent.
func (e *Event) queueOf(queue string) string {
	if e.Urgent {
		return QueueUrgent
	}
	return queue
}

// Payload is the payload of all tasks of push but Notify, which has an [Event].
type Payload struct {
	Event uint64      `json:"event"`          // the number of a [StoredEvent]; of a burst task, any of the burst
	After member.ID   `json:"after,omitzero"` // of a target task: the recipients with higher ids
	To    []Recipient `json:"to,omitempty"`   // of a deliver task, at most maxTo; of a burst task a device
	Burst BurstID     `json:"burst,omitzero"` // of a burst task
}

// maxTo is how many recipients a task sends to at most.
const maxTo = 256

// Recipient is a device and its member. As JSON it is [member, device].
type Recipient struct {
	Member member.ID
	Device uint64 // 0: all devices of the member
}

func isWhole(r Recipient) bool { return r.Device == 0 }

// MarshalJSON implements [json.Marshaler].
func (r Recipient) MarshalJSON() ([]byte, error) {
	text := strconv.AppendUint([]byte("["), uint64(r.Member), 10)
	text = strconv.AppendUint(append(text, ','), r.Device, 10)
	return append(text, ']'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Recipient) UnmarshalJSON(text []byte) error {
	var pair [2]uint64
	err := json.Unmarshal(text, &pair)
	r.Member, r.Device = member.ID(pair[0]), pair[1]
	return err
}

// parse reads the payload of a task. An error says why it makes no sense.
func (p *Payload) parse(t queue.Task) error {
	err := json.Unmarshal(t.Payload, p)
	switch {
	case err != nil:
		return err
	case p.Event == 0:
		return errors.New("it names no event")
	case slices.ContainsFunc(p.To, func(r Recipient) bool { return r.Member == 0 }), t.Kind == Deliver && len(p.To) == 0:
		return errors.New("it names no member")
	case t.Kind == Burst && (p.Burst == BurstID{} || len(p.To) != 1 || p.To[0].Device == 0):
		return errors.New("it names no burst, or no device, or more than one device")
	}
	return nil
}

// follow returns a task about an event that a task is followed by, after a time. Of the tasks for a burst and a device, a task
// that has not begun absorbs all after it.
func (j *job) follow(kind string, e *StoredEvent, p Payload, after time.Duration) queue.New {
	p.Event = e.Number
	n := queue.New{Kind: kind, Key: e.Number, Queue: e.queueOf(QueueDeliver), Priority: j.task.Priority, Delay: after}
	if e.Urgent {
		n.Priority = min(n.Priority, queue.Urgent)
	}
	switch kind {
	case Target:
		n.Queue = e.queueOf(QueuePush)
	case Burst:
		to := p.To[0]
		n.Key, n.Queue = to.Device, QueueDeliver
		n.DedupeKey = fmt.Sprintf("burst:%d:%d:%x", to.Member, to.Device, p.Burst) // a device may go over to another member
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("push: payload of %s: %v", kind, err)) // it is numbers and hexadecimal digits
	}
	n.Payload = text
	return n
}
