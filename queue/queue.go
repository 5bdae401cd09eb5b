package queue

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/notify"
)

// KeyTTL is how long the key of [Queue.EnqueueOnce] is remembered at least, as long
// as there are no more than about MaxKeys. Of more, the oldest are forgotten: what is then
// enqueued twice is done twice, which does no harm, while a refusal would let one
// client that makes many keys keep all others from enqueuing.
const (
	KeyTTL  = 24 * time.Hour
	MaxKeys = 1_000_000
)

// MaxLease is how long a lease lasts at most.
const MaxLease = 24 * time.Hour

// sharedAttempts is how many attempts of a task may be shared with others: from the next one
// on it runs alone, as it may be what makes all of them fail, hang or die. It is two: most
// tasks whose first attempt was lost were in a process that was killed for another reason,
// often with a thousand others.
const sharedAttempts = 2

// ErrKeyReused says that a key of [Queue.EnqueueOnce] stands for another batch.
var ErrKeyReused = errors.New("the idempotency key was used for other tasks")

// Swept counts what a sweep did.
type Swept struct {
	Due      int  // scheduled tasks that are waiting now
	TookOver int  // tasks freed or buried because their lease ran out
	More     bool // there may be more: sweep again at once
}

// Options say how a queue works.
type Options struct {
	// Kinds are the kinds of task that it knows.
	Kinds Kinds
	// Registerer gets the metrics; nil: there are none. Queues and pools may share one: they
	// count together.
	Registerer prometheus.Registerer
	// Notifier is notified of tasks that were enqueued, by the names of their queues; nil: one of
	// the queue's own, for the pools of this process.
	Notifier *notify.Notifier
	// Owner names this process in the leases, for operators; of more than 40 bytes, the first ones.
	Owner string
	// Queues are always among those that Stats counts, besides those of the kinds.
	Queues []string
}
