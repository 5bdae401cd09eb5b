package push

// The kinds of task, and their queues.
const (
	KindNotify  = "notify"  // an event is to be targeted; its key is the actor, its payload the event
	KindTarget  = "target"  // the next page of an event's recipients
	KindDeliver = "deliver" // an event, or a burst of them, is to be sent to the device that is its key

	QueueNotify = "notify" // notify and target
	QueuePush   = "push"   // deliver
)
