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
// Each worker has a home, the queue that it works on first; all but the first
// worker of a queue help the others when their home is empty (homes.go). So no
// queue can starve another, and no worker idles while tasks wait.
//
// The claims of a process go through lanes (lanes.go): tasks that share an ordering
// key (see [Kind]) run one at a time and in the order of their claims. Different
// processes may still work on one key at once.
//
// An idle worker sleeps until its queue's [Bell] is rung. Package wake carries
// the bell to other processes, by Redis; a slow poll is the safety net for what
// nobody rang for, such as the rows that a site inserts by itself.
package queue
