// Package queue is a durable queue of tasks in the MySQL or MariaDB of your program, and the workers that do them.
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
// docs/queue.md is the manual, and compares the queue with asynq and River; examples/go is a program. [Queue] and [Pool] are safe for
// concurrent use, and use no global state.
//
// Programs need [OpenDB], [Migrate], [NewQueue], [Queue.EnqueueTx], [NewPool] and [Handle]; [Queue.RunPeriodic] enqueues by the clock.
// Operators need [Queue.List], [Queue.Retry], [Queue.Cancel], [Queue.Pause] and [Queue.Stats]. Workers that are no pool use
// [Queue.ClaimAs], [Queue.ExtendLease] and [Queue.FinishLease].
//
// # Promises
//
//   - A task commits with the change that it is about, and is done at least once. A worker that lost its lease finishes nothing.
//   - Nothing is stuck: whatever happens to a worker, its tasks are free after the lease and the next sweep (see [Pool]).
//     Nothing is lost: an outage counts no attempt, unless a lease ends in it; errors are tried again with growing pauses, and a
//     task that fails for good stays, dead, with its reason.
//   - Follow-ups commit with the end of their task.
//   - Of the tasks with the same ordering key (see [Kind]) at most one is leased at a time, by priority and then by id, in all
//     processes.
//   - Of the tasks that have not started, at most one has a dedupe key; it stands for the tasks that were enqueued with the key after
//     it. A change after the start gets a task of its own: the start takes the key away, and a task cannot start before the
//     changes that it stands for are committed.
//   - A row may have any values that its columns take. A row that the database refuses to have changed is buried, alone, with the
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
// A row of tasks has its state, attempts, dates, lease and last error; [Schema] describes the columns. Times are unix milliseconds of
// the database's clock. A lease is the token in the rows of a claim; run_at is its end.
//
// A row of held_keys names the task of an ordering key that may run. A claim that meets a task of the key gives the key to the first
// waiting task, if no task holds it, and puts the rest behind that. The end of the task brings the next back; so does a claim that
// meets it expired, too long or too early. A sweep mends a key whose task can neither run nor is next for another reason: it was
// deleted, or its last lease ran out.
//
// All transactions are READ COMMITTED. Claims never wait for rows of tasks (SKIP LOCKED). A statement locks rows of held_keys
// in the order of their primary key, after rows of tasks. A claim that puts tasks aside has two such statements: it may lose a deadlock,
// and is repeated.
//
// # Errors
//
// They match [ErrInvalid] when a task makes no sense, [ErrUnavailable] when the database cannot be used now, and the error of a context
// that has ended; else they are of the driver, and say what to do where that is known.
package queue
