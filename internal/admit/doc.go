// Package admit bounds the reads under way, so that those that are let in end soon, however many
// come: the others are refused before anything is asked of Redis or MySQL.
//
// # A place
//
// A read has one place until it is answered, whatever it turns out to be. A proven one, the most
// frequent, takes a round trip to Redis and one to MySQL; a compared one up to three to MySQL; a walk
// fetches much more. While any of them is under way about as many cores are busy, so each weighs the
// same: one that needs more work has its place for longer. A read that waits for a slow Redis keeps
// no core busy, and gives its place up until the reply. One that waits for the walk of another read of the same
// viewer keeps its place, as that is short.
//
// # Who is let in
//
//   - A read for which there is room is let in at once, whoever asks. The others wait.
//   - In a burst they wait for 100 ms at most, and the oldest is let in first: all have their turn
//     soon.
//   - When there was always one that waited for 100 ms, or one was refused in the last 200 ms, more
//     come than can be answered. In such an overload a read waits for 10 ms; no more come to wait than
//     may be under way; and the newest is let in first, as the clients of the others give up sooner. One that
//     is too many is refused as it comes.
//   - Of several callers, the next read is of the one with the fewest under way, and of its viewers
//     of the one with the fewest. One is too many if no other caller or viewer has more that wait;
//     else the oldest of that one is refused for it.
//   - A read that has waited for Redis comes before others, and waits for 100 ms in an overload, too.
//   - In an overload half of the places are for reads that do not walk: one that turns out to need a walk
//     is refused while walks have the others. One walk may always be under way, so that sets that are
//     missing come back under any load.
//
// # How many
//
// The time of proven reads says how busy the servers and the process are, as all of them do the
// same. What they usually take is learnt: see law. While they take less than eight times as long and
// reads wait, the limit rises by one a round, of 32 reads or a tenth of a second; when they take
// more than twelve times as long, it falls by a fifth. It neither falls below [Options.Least], which
// is enough to keep two cores busy, nor rises above [Options.Most], which the connections to MySQL
// bound. Time alone does not say whether fewer reads would be quicker. A server that is further
// away, or slow for another reason than this process, takes its time whatever is under way, and
// fewer reads would only be fewer answers. So once a second, while the limit is at its least and
// reads are slow, one round has twice as many: when they take about as long as before, this is what
// they take, and is the usual time from then on.
//
// # Late
//
// [Lateness] measures by how much the process itself is late, as when its machine has other things
// to do. A reply that was late because of that says nothing about the server.
//
// # Invariants
//
// No more reads are under way than the limit, except after it fell. A read that waits is let in or
// refused, once, within 100 ms. What has left is not counted, and no caller or viewer is kept of which
// nothing is under way or waits.
package admit
