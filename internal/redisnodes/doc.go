// Package redisnodes sends commands to one Redis server or to the masters of a cluster, and says
// of each what can be done with its data: one [State] a node, for all who ask. It knows nothing of
// what is stored there.
//
// # The state of a node
//
// What is seen of a node is stored in one value: that it did not answer, how its last probe ended,
// what it refused, what its data were found to be. Its state is a pure function of that and the
// clock. [Nodes.State] returns it for a key and [Nodes.Status] for all nodes; the metrics show it.
//
// [Nodes.Watch] probes each node once a second, which is a few small commands and one script. A
// node that hangs is given up after a second: the calls that wait for it end, others fail at once,
// and only probes connect to it, until one is answered.
//
// # What is believed
//
// What is stored in a server may be older than what was written to it: a replica may have
// taken over that had not been sent all, or the server may have started with data that
// was saved some time ago. So the data of a node are believed only while the run of the server that
// they were written to, which is stored beside them, is the run of the server that answers.
// INFO reports it; each start has a new one.
//
//   - It is looked up before the first reply of a node is believed, and again before the
//     next one whenever a connection to the node was made: a server that restarted, or
//     another one in its place, answers over new connections only. A replica that took over was no
//     master before, and was not believed.
//   - The key of the run replicates, is saved and is restored as the data are, so it
//     holds the run of those data. No process has to be there when it happens.
//   - In a cluster there are such keys for each node, in slots that are evenly spread. They
//     move with their slots: a run that is that of another master now says that a slot
//     came from there, and is overwritten. A probe does so, which asks all masters.
//   - The data of any other node are unknown. One process deletes them, and then stores
//     the run: after it a key is missing, or was made since.
//   - Nor is a reply believed to what was sent while the data were unknown: they may have been
//     read before they were deleted.
//   - Where a server does not report its run, as an ACL may forbid INFO, its data are
//     believed, and only the marks show what it lost. The marks are numbers that each probe raises.
//     One that falls shows that a server which runs on has other data, as after a restore in place.
//
// A Sentinel, and a name such as the primary endpoint of a managed service, may come to lead to
// another server. The connections to the former one end then; or they lead to another address than
// a new one, and are closed when that is made; or the former server is a replica by now and answers
// READONLY, to the probe of each second and to the question for its run, and they are closed
// as well. Addresses at which the same run is found, such as those of several proxies, count as
// one. A proxy that leads new connections to another server, and keeps those to a former one that
// takes itself for the primary, is not noticed.
package redisnodes
