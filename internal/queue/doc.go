// Package queue is a durable queue of tasks in MySQL, and the workers that take
// from it. What a task asks for is up to its kind: the queue sees a [Kind], a key
// and a payload.
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
// The table lives in the site's own database, so that a task commits with the
// change it is about: no change without its task, no task without its change.
// Workers claim batches with FOR UPDATE SKIP LOCKED under a lease. The token of
// the lease is part of every later write, so a worker that was paused past its
// lease finishes nothing. A task is done at least once.
//
// Nothing is stuck: whatever happens to a worker, its tasks are free again after
// the lease and the next sweep (see [Pool]). Nothing is lost: an outage of a
// server does not count as an attempt, errors are tried again with growing
// pauses, and what fails for good stays in the table, dead, with its reason.
//
// Dedupe: among tasks that have not been started there is one per dedupe key,
// which absorbs others. The start clears the key, so a change that comes later
// gets a task of its own. While a transaction that absorbed its task is open,
// the absorbing task is locked and cannot start before that change commits.
//
// # The pool
//
// Each queue has a fetcher and a fixed number of workers. The fetcher claims a
// batch when a worker is idle, and divides it among the idle ones; tasks with the
// ordering key (see [Kind]) of some that are not finished go to the worker that has
// these. So within a process the tasks of a queue that share an ordering key run one
// at a time and in the order of their claims. Different processes, and two queues,
// may still work on one key at once.
//
// The table holds times in unix milliseconds of the database's clock. due_at is when something
// must happen to a task, by its state: it may run, its lease ends, it expires, it is deleted.
// paused_queues names the queues of which no task may start; each sweep looks at it. A row may
// hold whatever its columns take: one that the database refuses to have claimed, finished or
// swept is buried, alone.
//
// A fetcher without tasks waits for its queue's [Notifier]. Package wake carries
// notifications to other processes, by Redis; a slow poll finds what came without
// one, such as the rows that a site inserts by itself.
package queue
