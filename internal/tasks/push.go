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
		Name: push.Notify, Workers: pushWorkers, Produced: true, Takes: eventField, Handler: pushed, Group: "push",
	}
	target  = kind{Name: push.Target, Workers: pushWorkers, Handler: pushed, Group: "push"}
	deliver = kind{Name: push.Deliver, Workers: deliverWorkers, Handler: pushed, Group: "push"}
	// Of a burst, two tasks at a time would send the same to a device.
	burst = kind{Name: push.Burst, Workers: deliverWorkers, Ordered: true, Handler: pushed, Group: "push"}
)

func pushed(w work) queue.Handler { return orNone(w.Push, "push") }

var (
	// While some workers wait for the push services, the rest look and record: more than a service that hangs can hold up.
	pushWorkers    = queue.Workers{Queue: push.QueuePush, Count: 32, Batch: 128, Lease: pushLease}
	deliverWorkers = queue.Workers{Queue: push.QueueDeliver, Count: 32, Batch: 128, Lease: pushLease}
	// The home of the kinds is push. An urgent event finds an idle worker.
	urgentWorkers = queue.Workers{Queue: push.QueueUrgent, Count: 8, Batch: 64, Lease: pushLease}
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
