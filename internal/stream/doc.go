// Package stream moves what a site adds to a Redis stream into the queue. For a producer,
// an event or a hint then costs one light command, and no call of the database:
//
//	XADD activityd_events * task '{"type":"upload","user_id":"98765"}'
//
// An entry has one field, task: the JSON of one task, as POST /v1/tasks takes it.
//
//	           XREADGROUP             commit                  XACK and XDEL
//	in the stream -----> held by a consumer -----> in the queue, too -----> in the queue
//	                          |    ^
//	                          |    | XAUTOCLAIM, from a consumer that did nothing for 5 s
//	                          |    +--- held by another consumer
//	                          | makes no sense
//	                          +-----> in activityd_events_dead, too -----> there
//
// # The invariant
//
// An entry leaves the stream only after its task is committed, or after it lies in the
// stream of the dead. [Consumer.settle] alone takes entries out, and [Consumer.move] calls it
// with the ids of those alone for which one of the two was answered. Nothing is trimmed:
// neither by this package nor, if they leave out MAXLEN, by producers.
//
// Nothing is stuck: each entry of the stream is one of these, and goes on.
//
//   - It was not delivered. The next read of any consumer finds it.
//   - A consumer holds it that is alive. It moves what it holds before it reads anything
//     new; after a failure it reads again what it holds.
//   - A consumer holds it that died or is slow. Another claims it.
//   - It was delivered and no consumer holds it: the consumer was deleted, or the entry
//     acknowledged, by hand. The chores find it, and have everything delivered again.
//   - The group is gone, with DEL, FLUSHALL, or a Redis that lost its data. It is made
//     again, from the beginning of the stream: what is in it was not moved.
//
// So an entry may be moved twice: when a consumer dies between the commit and the settling,
// or is so slow that its entries are claimed. Tasks are hints, which may be done twice. An
// event has an id, by which it is targeted once: that of its producer, or one that is made of
// the entry's id and content (see eventID).
//
// # Redis
//
// Redis 6.2 or Valkey; one server, Sentinel, or a cluster: no command and no script
// has the keys of both streams, which are in different slots. An entry is therefore copied
// to the dead first, and settled afterwards, so that it may lie there twice. (On one server
// MULTI would not do either: it goes on after an error.) The rights are those that package
// index needs: @read, @write and @scripting.
package stream
