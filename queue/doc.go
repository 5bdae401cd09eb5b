// Package queue is a durable queue of tasks in your program's own MySQL or MariaDB, and the workers that take
// from it. What a task asks for is up to its kind: the queue sees a [Kind], a key and a payload.
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
// docs/queue.md says how to use it, and how it differs from others; examples/go is a program. [Queue] and [Pool]
// are safe for concurrent use, and know nothing global.
//
// Programs need [OpenDB], [Migrate], [NewQueue], [Queue.EnqueueTx], [NewPool] and [Handle]. For people who look after the queue
// there are [Queue.List], [Queue.Retry], [Queue.Cancel], [Queue.Pause] and [Queue.Stats]. For workers that are no pool there
// are [Queue.ClaimAs], [Queue.ExtendLease] and [Queue.FinishLease].
//
// # What it promises
//
//   - A task commits with the change it is about, and is done at least once. A worker that lost its lease finishes nothing.
//   - Nothing is stuck: whatever happens to a worker, its tasks are free after the lease and the next sweep (see [Pool]).
//     Nothing is lost: an outage counts as no attempt, errors are tried again with growing pauses, and what fails for good
//     stays, dead, with its reason.
//   - Follow-ups commit with the end of their task.
//   - Of the tasks with one ordering key (see [Kind]) one is leased at a time, by priority and then by id, in all processes.
//   - Among tasks that have not been started there is one per dedupe key, which stands for others. A change that comes after
//     the start gets a task of its own: the start takes the key away, and a task cannot start before the changes
//     that it stands for are committed.
//   - A row may hold whatever its columns take. One that the database refuses to have changed is buried, alone, with the
//     reason, or passed over.
//
// # States
//
//	            claim              nil
//	waiting ------------> running ------> (deleted)
//	  ^ ^ ^                |  |  \
//	  | | |  lease ran out |  |   \ Permanent, or no attempts left
//	  | | +----------------+  |    +----------> dead
//	  | |  due                | error, Later
//	  | +----- scheduled <----+
//	  |
//	behind: another task of its ordering key runs, or is next
//
// A row of tasks has its state, attempts, dates, lease and last error: schema.sql says what each column means. Times are unix
// milliseconds of the database's clock. A lease is the token in the rows of one claim; run_at is when it ends.
//
// A row of held_keys names the one task of an ordering key that may run. A claim that meets a task of the key gives
// the key to the first task that waits, if no task holds it, and puts others behind that. The end of the task
// brings the next one back. So does a claim that meets it expired, too long or too early. A sweep mends a key whose task
// can neither run nor is next for another reason: it was discarded, or its last lease ran out.
//
// All transactions are READ COMMITTED. Claims never wait for rows of tasks (SKIP LOCKED). Rows of held_keys are
// locked in the order of their primary key, after rows of tasks.
//
// # Errors
//
// They match [ErrInvalid] when a task makes no sense, [ErrUnavailable] when the database cannot be used now, and the error
// of a context that has ended; else they are of the driver, with what to do about them where that is known. Of a handler's
// errors, [Permanent] and [Later] say what a plain one does not.
package queue
