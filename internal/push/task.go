package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// The kinds of task. The key of Notify and Target is the actor, that of Deliver the number of the event, that of Burst the
// device.
const (
	Notify  = "notify"  // an event is to be targeted
	Target  = "target"  // the next page of its recipients
	Deliver = "deliver" // it is to be sent to devices of a platform
	Burst   = "burst"   // the events of a burst that wait are to be sent to a device
)

// The queues. Tasks of urgent events have their own, whose workers do not wait for answers to other tasks; targeting
// waits for no answers.
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

// Page is the payload of a target task: the recipients of the event, or the followers
// of its actor, whose ids are above After.
type Page struct {
	Event uint64    `json:"event"` // the number of a [StoredEvent]
	Task  uint64    `json:"task"`  // as in an [EventRef]
	After member.ID `json:"after,omitzero"`
}

// Delivery is the payload of a deliver task: an event, and the devices that it is to be sent to. That of a burst task is
// any event of the burst, and a device.
type Delivery struct {
	Event uint64      `json:"event"`          // the number of a [StoredEvent]
	Task  uint64      `json:"task"`           // as in an [EventRef]
	To    []Recipient `json:"to"`             // at most maxTo
	Burst BurstID     `json:"burst,omitzero"` // of a burst task
}

// maxTo is how many devices a deliver task has at most.
const maxTo = 256

// Recipient is a device and its member. As JSON it is [member, device].
type Recipient struct {
	Member member.ID
	Device uint64
}

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

// newTask returns a task that a page of an event is followed by. Its payload is numbers and
// hexadecimal digits, so that it always can be marshalled.
func newTask(kind, inQueue string, key uint64, payload any, dedupeKey string) queue.New {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("push: payload of %s: %v", kind, err))
	}
	return queue.New{Kind: kind, Key: key, Payload: text, Queue: inQueue, DedupeKey: dedupeKey}
}

// task returns the task that targets the page of an event. It has no dedupe key: the page before it, whose follow-up it
// is, ends once.
func (p Page) task(e *StoredEvent) queue.New {
	return newTask(Target, e.queueOf(QueuePush), uint64(e.Actor), p, "")
}

// task returns the task that delivers the event.
func (e *StoredEvent) deliver(to []Recipient) queue.New {
	return newTask(Deliver, e.queueOf(QueueDeliver), e.Number, Delivery{Event: e.Number, Task: e.Task, To: to}, "")
}

// wait returns the task for the events of the event's burst that wait for a device.
func (e *StoredEvent) wait(to Recipient) queue.New {
	return Delivery{Event: e.Number, Task: e.Task, To: []Recipient{to}, Burst: e.Burst()}.wait()
}

// wait returns the burst task with that payload. For a burst and a device, a task that has not begun absorbs all after it.
func (d Delivery) wait() queue.New {
	to := d.To[0]
	key := fmt.Sprintf("burst:%d:%d:%x", to.Member, to.Device, d.Burst) // a device may go over to another member
	return newTask(Burst, QueueDeliver, to.Device, d, key)
}

func (d Delivery) ref() EventRef { return EventRef{d.Event, d.Task} }

func idKey(id string) string { return "notify:" + id }

// NotifyKey is the dedupe key of a notify task: two with the same id are the same event.
// So are two without an id that are equal, if neither was started: who enqueues a batch again
// repeats nothing. (A row has no dedupe key, and an entry of the stream has an id: each is
// an event of its own.)
func NotifyKey(actor uint64, payload json.RawMessage) (string, error) {
	var e struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return "", err
	}
	if e.ID != "" && len(e.ID) <= MaxID {
		return idKey(e.ID), nil
	}
	var fields map[string]any // the names sorted: the server may store them in another order
	if err := json.Unmarshal(payload, &fields); err != nil {
		return "", err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return fmt.Sprintf("notify:%d:/%s", actor, hex.EncodeToString(hash[:16])), nil
}
