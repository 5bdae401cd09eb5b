// Package stream moves entries that a site adds to a Redis stream into the queue. For a producer, an event or a hint then costs one light
// command, and no call of the database:
//
//	XADD activityd_events * task '{"type":"upload","user_id":"98765"}'
//
// An entry has a single field, task: the JSON of a task, as POST /v1/tasks takes it.
//
// One process at a time, the holder of a lease in Redis, reads the first entries of the stream, commits their tasks, and deletes
// them. Entries that make no sense are copied to activityd_events_dead first.
//
// # The invariant
//
// An entry leaves the stream only after its task is committed, or after a copy lies in the stream of the dead: [Mover.settle] alone
// deletes, and only entries that [Mover.move] has noted. Nothing is trimmed: neither by this package nor, if they leave out MAXLEN, by
// producers.
//
// Nothing is stuck, as the next entries are always the first of the stream. A holder that dies, stands still, or fails loses its
// lease, and another process goes on with the same entries. The lease saves effort, and no truth depends on it: where two
// processes hold it, or an answer is lost, entries are moved twice. Tasks are hints, which may be done twice. An event has an id, and
// is targeted once by it: its producer's, or an id that is made of the entry's id and content (see eventID).
//
// There is no consumer group: its readers hold entries; entries then need claims from readers that died, and repairs after people
// changed the group by hand.
//
// # Redis
//
// Redis 6.2 or Valkey; one server, Sentinel, or a cluster: no command has two keys, as they would lie in different slots. The rights
// are the same as package index needs: @read, @write and @scripting. A Redis whose memory is full grants no lease, and all
// processes move, so that the memory gets free.
package stream
