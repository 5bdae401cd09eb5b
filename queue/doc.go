// Package queue is a durable queue of tasks in your program's own MySQL or MariaDB, and the workers that take
// from it. What a task asks for is up to its kind: the queue sees a [Kind], a key
// and a payload.
//
//	db, err := queue.OpenDB("user:password@tcp(127.0.0.1:3306)/shop")
//	err = queue.Migrate(ctx, db)
//	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "receipt"}}})
//
//	_, err = q.EnqueueTx(ctx, tx, queue.New{Kind: "receipt", Args: Receipt{Order: 7}}) // in your transaction
//
//	handlers := map[string]queue.Handler{"receipt": queue.Handle(func(ctx context.Context, t queue.Task, r Receipt) error { … })}
//	pool := queue.NewPool(q, handlers, queue.PoolOptions{Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 8}}})
//	err = pool.Run(ctx)
//
// docs/queue-in-go.md says how to use it, and how it differs from others; examples/go is a program. [Queue] and [Pool]
// are safe for concurrent use, and know nothing global: two in a process share what they are both given.
//
// Programs need [OpenDB], [Migrate], [NewQueue], [Queue.EnqueueTx], [NewPool] and [Handle]. For people who look after the queue
// there are [Queue.List], [Queue.Retry], [Queue.Discard], [Queue.Pause] and [Queue.Stats]. For workers that are no pool there
// are [Queue.Lend], [Queue.Renew] and [Queue.Return]. The remaining methods are those
// that a pool calls (see [Store]), and what activityd needs besides.
//
// # Errors
//
// They match [ErrInvalid] when a task makes no sense, [ErrUnavailable] when the database cannot be used now, and the error
// of a context that has ended; else they are of the driver, with what to do about them where that is known. Of a handler's
// errors, [Permanent] and [Later] say what a plain one does not.
//
// # The queue
//
//	            claim              nil
//	waiting ------------> running ------> (deleted, or kept for a while: done)
//	   ^  ^                |  |  \
//	   |  |  lease ran out |  |   \ Permanent, or no attempts left
//	   |  +----------------+  |    +----------> dead
//	   |  due                 | error, Later
//	   +------ scheduled <----+
//
// The tables live in the site's own database, so that a task commits with the
// change it is about: no change without its task, no task without its change.
// Each task is in one of three places at a time. In tasks it waits: rows are only
// inserted there and deleted. A worker claims a batch with FOR UPDATE SKIP LOCKED,
// deletes exactly the ids that it read, and writes all of it into one row of
// task_leases, whose token is part of every later write: a worker that was paused past
// its lease finishes nothing. What comes later, is tried again, is dead or is kept is in
// parked_tasks. A move is one transaction. A task is done at least once.
//
// A task keeps its id, by which a handler may know it when it comes again; and the counter
// of tasks never falls, not in a restart or a promotion either, so no two tasks have one id.
// Where AUTO_INCREMENT was set back, a task whose id another has cannot come back to tasks
// before that one has left: it is buried, with the reason.
//
// Nothing is stuck: whatever happens to a worker, its tasks are free again after
// the lease and the next sweep (see [Pool]). Nothing is lost: an outage of a
// server does not count as an attempt, errors are tried again with growing
// pauses, and what fails for good stays in parked_tasks, dead, with its reason.
//
// Dedupe: among tasks that have not been started there is one per dedupe key,
// which absorbs others. The start deletes the row, and the key with it, so a change
// that comes later gets a task of its own. While a transaction that absorbed its task
// is open, the absorbing task is locked and cannot start before that change commits.
//
// # The pool
//
// Each queue has a fetcher and a fixed number of workers. The fetcher claims a
// batch when a worker is idle, and divides it among the idle ones, but gives a few small tasks
// (see [Workers].Batch) to one of them. Then, while half of the workers or more are busy, claims that are not full
// follow each other at a distance, 10 ms at most, so that the workers do not all begin at once. Tasks with the
// ordering key (see [Kind]) of some that are not finished go to the worker that has
// these. So within a process the tasks of a queue that share an ordering key run one
// at a time and in the order of their claims. Different processes, and two queues,
// may still work on one key at once.
//
// The tables hold times in unix milliseconds of the database's clock. due_at is when a
// task may run that waits or is scheduled, and when one is deleted that is kept; a lease
// ends at ends_at. paused_queues names the queues of which no task may start; each sweep
// looks at it. What expires there is dropped all the same.
//
// A row may hold whatever its columns take. One that the database refuses to have claimed
// or parked stays where it is and is passed over; one that it refuses to have finished,
// freed or woken is buried, alone, with the reason.
//
// A task whose handler needs what cannot be used now is postponed: see [Dependency].
//
// A fetcher without tasks waits for its queue's [Notifier]. Package wake carries
// notifications to other processes; a slow poll finds what came without one, such as the
// rows that a site inserts by itself.
package queue
