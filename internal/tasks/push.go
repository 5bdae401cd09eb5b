package tasks

import (
	"encoding/json"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// The kinds that notify members: see package push.
var (
	notify = kind{
		Name: push.Notify, Workers: pushWorkers, Produced: true, Takes: eventField, DedupeKey: push.NotifyKey, Handler: handlerOfPush, Group: "push",
	}
	target  = kind{Name: push.Target, Workers: pushWorkers, DedupeKey: push.TargetKey, Handler: handlerOfPush, Group: "push"}
	deliver = kind{Name: push.Deliver, Workers: pushWorkers, DedupeKey: push.DeliverKey, Handler: handlerOfPush, Group: "push"}
)

// handlerOfPush is the handler of all three: it takes them together.
func handlerOfPush(w work) queue.Handler {
	if w.Push == nil {
		return noHandler{"push"}
	}
	return w.Push
}

var (
	// While a worker waits for the push service, the others look and record.
	pushWorkers = queue.Workers{Queue: push.QueuePush, Count: 6, Batch: 128, Lease: pushLease}
	// The home of the kinds is push. A worker waits for the answers to its share,
	// as long as the push service takes: an urgent event then finds another one idle.
	urgentWorkers = queue.Workers{Queue: push.QueueUrgent, Count: 3, Batch: 64, Lease: pushLease}
)

// pushLease is how long the notifications of a process that died are held up.
const pushLease = 5 * time.Second

var eventField = &field{
	Name: "event", What: "event", Want: "an event",
	Task: func(_ kind, r *strictjson.Reader, at string, of member.ID, value json.RawMessage) queue.New {
		e := push.ReadEvent(r, at, of, value)
		if len(r.Faults) > 0 {
			return queue.New{}
		}
		n, err := push.NewNotify(e)
		if err != nil {
			r.Addf(at, "%v", err)
		}
		return n
	},
}

// ParseNotify makes a task from a member and an event as JSON, as in the task of a
// producer. Its errors are those of [ParseLine].
func ParseNotify(actor member.ID, event []byte) (queue.New, error) {
	value, err := strictjson.Parse(event)
	if err != nil {
		return queue.New{}, err
	}
	r := &strictjson.Reader{Root: eventField.What}
	n := eventField.Task(notify, r, "", actor, value)
	return n, r.Err()
}
