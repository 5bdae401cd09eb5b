package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// The kinds of task. Notify and Target have the actor as key, Deliver its first device.
const (
	Notify  = "notify"  // an event is to be targeted
	Target  = "target"  // the next page of its followers
	Deliver = "deliver" // it is to be sent to devices
)

// The queues of all three kinds. The tasks of urgent events have one of their own, whose workers do not
// wait for the answers to others.
const (
	QueuePush   = "push"
	QueueUrgent = "push_urgent"
)

// queueOf returns the queue of an event's tasks.
func (e *Event) queueOf() string {
	if e.Urgent {
		return QueueUrgent
	}
	return QueuePush
}

// Page is the payload of a target task: those of the event's recipients, or of the followers
// of its actor, whose ids are above After.
//
// A site's database that lost events, beside a queue that did not, gives their numbers to others.
// So Task is that of the event, see [StoredEvent.Task]: ids of tasks are not given again, and
// identify the event. It is 0 in what processes of a former release enqueued.
type Page struct {
	Event uint64    `json:"event"` // the number of a [StoredEvent]
	Task  uint64    `json:"task,omitzero"`
	After member.ID `json:"after,omitzero"`
}

// Delivery is the payload of a deliver task: an event, and the devices that it is to be sent to.
type Delivery struct {
	Event uint64      `json:"event"`         // the number of a [StoredEvent]; of a burst, of one of its events
	Task  uint64      `json:"task,omitzero"` // as in a [Page]
	To    []Recipient `json:"to"`            // at most maxTo; of a burst, one
	// Burst is that of the event in hexadecimal, see [Event.Burst], if the task sends all events of the burst that are pending
	// for the device; "": it sends the event alone, whether that is one of a burst or not.
	Burst string `json:"burst,omitempty"`
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
// hexadecimal digits, which always can be marshalled.
func newTask(kind, inQueue string, key uint64, payload any, dedupeKey string) queue.New {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("push: payload of %s: %v", kind, err))
	}
	return queue.New{Kind: kind, Key: key, Payload: text, Queue: inQueue, DedupeKey: dedupeKey}
}

// task returns the task that targets the page of an event.
func (p Page) task(e *StoredEvent) queue.New {
	return newTask(Target, e.queueOf(), uint64(e.Actor), p, p.dedupeKey())
}

func (p Page) dedupeKey() string {
	if p.Task == 0 {
		return fmt.Sprintf("target:%d:%d", p.Event, p.After)
	}
	return fmt.Sprintf("target:%d:%d:%d", p.Event, p.After, p.Task)
}

// task returns the task that delivers. Only one of a burst has a dedupe key: an event and a device are in one other
// task at a time, as that is committed with the end of the page or of the task
// that named the device before. A key would be looked up, and written twice, for nothing.
func (d Delivery) task() queue.New {
	key := ""
	if d.Burst != "" {
		key = d.dedupeKey()
	}
	return newTask(Deliver, QueuePush, d.To[0].Device, d, key)
}

func (d Delivery) dedupeKey() string {
	if d.Burst != "" {
		return fmt.Sprintf("burst:%d:%d:%s", d.To[0].Member, d.To[0].Device, d.Burst) // a device may go over to another member
	}
	return fmt.Sprintf("deliver:%d:%d:%d", d.Event, d.To[0].Device, d.Task)
}

// NotifyKey is the dedupe key of a notify task: two with the same id are the same event.
// So are two without an id that are equal, if neither was started: who enqueues a batch again
// repeats nothing. (A row has no dedupe key, and an entry of the stream has an id: each of
// those is an event of its own.)
func NotifyKey(actor uint64, payload json.RawMessage) (string, error) {
	var e struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return "", err
	}
	if e.ID != "" && len(e.ID) <= MaxID {
		return "notify:" + e.ID, nil
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

// TargetKey is the dedupe key of a target task.
func TargetKey(_ uint64, payload json.RawMessage) (string, error) {
	var p Page
	err := json.Unmarshal(payload, &p)
	return p.dedupeKey(), err
}

// DeliverKey is the dedupe key of a deliver task: one that waits absorbs those of its burst
// for the device.
func DeliverKey(_ uint64, payload json.RawMessage) (string, error) {
	var d Delivery
	if err := json.Unmarshal(payload, &d); err != nil {
		return "", err
	}
	if len(d.To) == 0 {
		return "", errors.New("it names no device")
	}
	return d.dedupeKey(), nil
}
