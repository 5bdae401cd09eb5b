// Package redisnodes sends commands to one Redis server or to the masters of a cluster, by go-redis' own clients, and
// says of each node whether its data can be used. It knows nothing of what is stored there.
//
// # What it promises
//
// Data that may be old are never believed past the next probe. A server may have started with a snapshot, a replica may have
// taken over that had not been sent all, a former master may be the master again, and an address may lead elsewhere.
//
//   - Each start of a server has a run of its own, which INFO reports. Beside the data lies the run of the server that they
//     were written to, with the settings by which they were made. It replicates, is saved and is restored as the
//     data are, so it is that of the data. In a cluster it lies in 256 slots, and moves with them.
//   - A connection is believed if the stored run is that of the server it leads to, and if that is the run which the last
//     probe believed ([Node.accept], go-redis' OnConnect). A server that starts again has a new run, and no
//     connection outlives a start; a replica that takes over has a run of its own. So no data that went back with a start or a
//     failover are read, not for an instant.
//   - What a connection leads to can change under it in three ways: the server is emptied or restored in place, becomes a
//     replica, or another one takes its address over. A probe each second over a connection of its own sees the
//     first by the stored run, the second by the role, the third by the run; from then on no call is sent.
//   - Data of another run, or without any, are deleted, the stored run first; then the run of the server is stored with a new
//     token. So behind a run that is its server's own lies what was written since. Deleting a key that was written meanwhile
//     costs work only.
//   - Tokens rise with the time. Where an address led to another server meanwhile, and data were written there, the token of
//     the former one is lower, and its data are deleted as well.
//   - Where one server is another one than before, a process deletes its data once even if another process did: what it wrote to
//     the former one until it noticed is in none of the sets that were built meanwhile.
//   - In a cluster a run of another living master came with a slot from there, if some of the node's runs are its own.
//     A replica that took over has none. A slot thus counts as own, and its run is overwritten.
//
// A node that hangs holds up no other: a pipeline goes to each node by itself and ends after [CallTimeout]; after two
// timeouts in a row calls to the node fail at once until a probe is answered.
//
// It does not promise to notice data that are restored in place together with the run, or that a server becomes a
// replica and a master again, between two probes; nor that an address leads elsewhere and back while no process runs.
//
// In a cluster it promises less. Where an address leads elsewhere, connections to the former server go on, and what a process
// writes there until its next probe may be lost. Data of slots that leave a node while its data are deleted are believed where
// the slots come to. Package check looks for what is wrong by then.
package redisnodes
