// Package redisnodes sends commands to one Redis server or to the masters of a cluster, by go-redis' own clients, and
// reports of each node whether its data can be used. It knows nothing of their meaning.
//
// # What it promises
//
// Data that may be old are never believed past the next probe. A server may have started with a snapshot, a replica may have
// taken over before it had all writes, a former master may be the master again, and an address may lead elsewhere.
//
//   - Each start of a server has a run of its own, which INFO reports. Beside the data lies a record: the settings by which they
//     were made, the run of the server that they were written to, and the time when it was stored. The record replicates, is
//     saved and is restored as the data are. A cluster has it in 256 slots, and it moves with them.
//   - A connection is believed if the record has the run of its server ([Node.accept], go-redis' OnConnect), and if that is the
//     server that the last probe saw at the address. A server that starts again has a new run, and ends all connections;
//     a replica that takes over has a run of its own. So a restart or a failover is never believed, not for an instant.
//   - A probe a second, over a connection of its own, sees all changes under a connection: an emptied server by the record, a
//     demoted master by its role, an address that leads elsewhere by the run. From then on no call is sent.
//   - Data with a record of another run, or without a record, are deleted, the record first; then a new record is stored.
//     So data beside the record of their own server were written since. The deletion of a new key costs work only.
//   - A process that finds another server at an address deletes the data there once, even if another process did: its last
//     writes to the former server are missing in all data that were written there until then.
//   - In a cluster the run of another living master came with a slot, if the node has records of its own, too. A
//     replica that took over has none. The record counts as own, and is overwritten.
//
// A node that hangs holds up its own data only: a pipeline goes to each node by itself and ends after [CallTimeout]; after two
// timeouts in a row calls to the node fail at once until a probe is answered.
//
// It does not promise to notice data that are restored in place together with the record, a server that becomes a
// replica and a master again between two probes, or an address that leads elsewhere and back while no process runs.
// In a cluster, data of slots that leave a node while its data are deleted may be believed at their new node.
// Package check finds the sets that are wrong by then.
package redisnodes
