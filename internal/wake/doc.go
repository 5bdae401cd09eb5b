// Package wake carries the bell of package tasks to other processes, over Redis
// publish/subscribe, so that a task which one of them enqueues is begun by an idle
// worker of another within milliseconds instead of at its next poll.
//
//	Bell.Ring ──> names of queues ──> PUBLISH activityd_wake ──> Bell.RingHere
//	(a process)    (gathered)              (Redis)               (all others)
//
// A message is a hint and carries nothing but names of queues, separated by
// commas; whoever is woken looks into MySQL. So a site that inserts tasks by SQL
// of its own may, after its commit, say the same:
//
//	PUBLISH activityd_wake default
//
// A message that gets lost costs the time until the next poll. These are the ways
// in which one could, and what is done about each:
//
//   - A process is not subscribed while Redis or the network is away. It subscribes
//     again as soon as it can, and then wakes one worker for each queue, whatever
//     was published while it was deaf.
//   - A message cannot be published. Its names are kept, and published when that
//     is possible again.
//   - A connection is dead and nobody has noticed. A ping every few seconds finds
//     out.
//
// A burst costs few messages: the first ring is published at once, what follows
// within a few milliseconds together. Ring never waits for Redis.
package wake
