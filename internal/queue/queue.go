package queue

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Queue is a durable queue of tasks. [MySQLQueue] is the one for production;
// [MemoryQueue] is its executable specification. Both pass one conformance
// suite, and are safe for concurrent use.
//
// A task is waiting, scheduled for later, running under a lease, dead, or, where
// finished tasks are kept for a while, done. It is claimed at least once: a lease
// that ran out gives it to another worker.
type Queue interface {
	// Enqueue adds a batch, whole or not at all, and returns an id for each
	// task in order, after the commit. A task whose dedupe key is that of one
	// which waits or is scheduled, has not been started, and is about the same,
	// is absorbed: it gets that one's id. The absorbing task runs as early, as
	// urgently and lives as long as any of those that it stands for. Any other
	// task that has the key loses it.
	Enqueue(ctx context.Context, batch []New) (ids []uint64, err error)
	// EnqueueOnce is Enqueue for a client that may have to repeat itself: a
	// batch that was enqueued under the same key before is not enqueued again,
	// the ids are those of then and replayed is true. Another batch under that
	// key fails with [ErrKeyReused]. Keys are remembered for
	// [KeyLife], the newest [MostKeys] of them.
	EnqueueOnce(ctx context.Context, key string, batch []New) (ids []uint64, replayed bool, err error)
	// Claim leases up to n due tasks of a queue, the urgent ones first, then in
	// order of arrival; those that expired are left to [Queue.Sweep]. Whatever
	// happens to the claimer, they are free again after the lease, which lasts
	// [MostLease] at most, and a Sweep. A task whose last lease ran out is
	// claimed alone: should it be what killed its worker, it takes no other with
	// it.
	Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error)
	// Extend makes the leases of the held tasks end after lease from now. Those
	// whose lease was lost to another worker stay so and are counted in lost.
	Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error)
	// Finish records results. Those whose lease was lost to another worker are
	// without effect and counted in lost.
	Finish(ctx context.Context, results []Result) (lost int, err error)
	// Sweep does what time brings: it makes scheduled tasks waiting when they are
	// due, frees tasks whose lease ran out or buries them when their attempts
	// are used up, and drops those that expired and those kept long enough. A
	// task that is scheduled, running or done without a time is due at once, and
	// so is a lease that is to last longer than any can.
	Sweep(ctx context.Context) (Swept, error)
	// Active returns those of the keys that have tasks of the kind that wait, or run
	// under a lease. One that a producer put elsewhere does not count, so that it holds
	// up nothing: one in another queue than the kind's, where perhaps no worker looks,
	// or less urgent than [Normal]; nor does one that failed and is scheduled for later.
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	// Absorb deletes the tasks that are of the kind and have the key of a
	// held one and have not been started, and returns how many they were. The
	// caller does their work, and reads what is true only afterwards. A task
	// whose lease is lost absorbs nothing: if its holder fails now, nobody would
	// do that work. One that absorbed does not expire any more.
	Absorb(ctx context.Context, held []Task) (absorbed int, err error)
	// Count returns how many tasks there are by state. It looks at all of them:
	// it is for tests and small queues; see [Queue.Stats].
	Count(ctx context.Context) (Counts, error)

	Operator
}

// Operator is the side of a queue for those who watch it.
type Operator interface {
	// Full tells whether at least limit tasks wait.
	Full(ctx context.Context, limit int) (bool, error)
	// Stats returns how full the queues are. It counts up to [StatsLimit].
	Stats(ctx context.Context) (Stats, error)
	// Pending returns those of the keys that have tasks of the kinds which are not
	// finished and not dead.
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	// List returns up to limit tasks that match, by id.
	List(ctx context.Context, match Filter, limit int) ([]Record, error)
	// Retry makes up to limit matching tasks that are dead, or scheduled for
	// later, waiting again, with all their attempts and without an expiry, and
	// returns how many.
	Retry(ctx context.Context, match Filter, limit int) (int, error)
	// Discard deletes up to limit matching tasks that do not run, and returns
	// how many.
	Discard(ctx context.Context, match Filter, limit int) (int, error)
	// Pause lets no task of the queue start, until [Queue.Resume]; those that
	// run go on. It tells whether that is a change. Pools notice at their next
	// sweep.
	Pause(ctx context.Context, queue string) (changed bool, err error)
	// Resume ends a pause and tells whether there was one.
	Resume(ctx context.Context, queue string) (changed bool, err error)
	// Paused returns the queues that are paused, sorted.
	Paused(ctx context.Context) ([]string, error)
}

// KeyLife is how long the key of [Queue.EnqueueOnce] is remembered at least, as long
// as there are no more than about MostKeys. Of more, the oldest are forgotten: what is then
// enqueued twice is done twice, which does no harm, while a refusal would let one
// client that makes many keys keep all others from enqueuing.
const (
	KeyLife  = 24 * time.Hour
	MostKeys = 1_000_000
)

// MostLease is how long a lease lasts at most.
const MostLease = 24 * time.Hour

// ErrKeyReused says that a key of [Queue.EnqueueOnce] stands for another batch.
var ErrKeyReused = errors.New("the idempotency key was used for other tasks")

// Swept counts what a sweep did.
type Swept struct {
	Due      int  // scheduled tasks that are waiting now
	TookOver int  // tasks freed or buried because their lease ran out
	Dropped  int  // tasks that expired before they were started
	More     bool // there may be more: sweep again at once
}

// Counts is the number of tasks in each state.
type Counts struct {
	Waiting, Scheduled, Running, Dead, Done int
}

// Open is the number of tasks that are not finished.
func (c Counts) Open() int { return c.Waiting + c.Scheduled + c.Running }

// Options say how a queue works. The zero value is fine.
type Options struct {
	// Notifier is told of tasks that were enqueued.
	Notifier *Notifier
	// Owner names this process in the leases, for people who look at the tasks.
	Owner string
	// Queues are always among those that Stats counts, besides those of [Queues].
	Queues []string
	// Keep is how long finished tasks are kept to be looked at; 0: not at all.
	Keep time.Duration
}

// standing returns the queues that Stats counts whatever else there is: those of
// [Queues], those of the options, and those that are paused.
func (o Options) standing(paused []string) []string {
	names := slices.Concat(Queues(), o.Queues, paused)
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func (o Options) withDefaults() Options {
	if o.Notifier == nil {
		o.Notifier = &Notifier{}
	}
	return o
}
