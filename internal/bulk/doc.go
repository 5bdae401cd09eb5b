// Package bulk does work on all members, or on a range of them, that takes long: it
// builds sets ([Builder]), and for the verify command and the sweep of package audit
// it compares them. Such work goes as fast as the servers bear it, survives their
// outages, and continues where it was stopped or killed.
//
// # The walk
//
// A [Walk] visits each member of a range once, in batches, several at the same time:
//
//	Source ──> batch ──> Pacer ──> Visit ──┐
//	           batch ──> Pacer ──> Visit ──┼──> checkpoint ──> Saved
//	           batch ──> Pacer ──> Visit ──┘
//
// Batches end in any order. The position of the [Checkpoint] is the member up to
// which all are done; it moves when the first open batch ends, over all that have
// ended by then. Only members up to the position are counted, so a walk that resumes
// at a checkpoint counts every member once, however the previous one ended. Members
// beyond the position are visited again: a visit must be idempotent.
//
// A visit returns the members that are left and an error, which is judged:
//
//   - [Away]: a server cannot be used. The members are visited again after a pause,
//     for as long as it takes, or for [Walk.Patience]; one of them asks whether it is back.
//     The other batches go on, so that a node of Redis holds up only the members on it.
//   - [Own]: the error may be due to one of the members, such as a set that others
//     keep changing, or more contacts than can be read in time. After a pause halves of
//     the batch are visited, then halves of those. A member that failed alone ten times
//     is given up: it is counted as [Failed] and the position moves on. A thousand such
//     members end the walk, since then the error is not theirs.
//   - [Fatal]: the walk ends.
//
// When the context ends, no batch begins; visits under way may go on for a while.
//
// # The pace
//
// A [Pacer] asks each server a small question several times a second and takes the
// time of the answer as a sign of load, as TCP Vegas does with round trips (Brakmo
// and Peterson, "TCP Vegas", IEEE JSAC 13(8), 1995): where requests queue, answers
// are late long before they fail. The median of five answers is compared with the
// server's usual time, and the number of batches at once follows additive increase,
// multiplicative decrease, which converges to a fair share (Chiu and Jain, "Analysis
// of the Increase and Decrease Algorithms for Congestion Avoidance in Computer
// Networks", Computer Networks and ISDN Systems 17, 1989):
//
//	all servers answer nearly as usual  one batch more, up to the maximum, if more get more done
//	one takes several times as long     half as many; with one batch left,
//	                                    twice the pause before each
//	one does not answer                 none, until it answers; then one
//
// Latency alone says too little: a probe is answered quickly by a machine whose cores are all in use, while what needs many
// rows waits. So the pacer also measures how many members a second it does with each number of batches. One batch more is to
// bring a quarter of what it would bring to idle servers; otherwise it only makes others wait, and is taken back. It is tried
// again after ten rounds, then twenty, up to 160.
//
// If a server answers as slowly in a round in which the pause kept all batches out, other load is the reason, and slowing
// down would not help. Its latency in that round becomes its usual time, up to 25 ms.
//
// The usual time follows faster answers at once and slower ones by some percent a
// minute. A walk begins with one batch, so that the usual is not learned under its
// own load. No time counts as slow below a floor, and every time above a ceiling
// does, since a walk may begin while a server is overloaded.
//
// # Jobs
//
// A [Job] is the walk of a command: it waits for the servers, keeps its checkpoint in
// a file, and ends when Redis, or all nodes of a cluster, lose data ([index.Generation]), because
// what it did is gone then. If only some nodes lose data, or are away, it goes on with the members
// of the others. One that writes holds a name of its command and range ([once.Once.Hold]) and
// is refused while another process does. Nothing but effort depends on that: visits are
// idempotent. So a job whose lease was lost, as in an outage of MySQL, stops only until it
// has acquired the name again.
package bulk
