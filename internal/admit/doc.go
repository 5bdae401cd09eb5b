// Package admit bounds the reads under way, so that those that are let in end soon, however many
// come: the others are refused before anything is asked of Redis or MySQL.
//
// # Classes
//
// What a read costs is known only when it was looked at. A proven one takes a round trip to Redis
// and one to MySQL, and is by far the most frequent; a compared one takes up to three to MySQL; a
// walk keeps MySQL busy all the time. A place has the weight of its class, see [Class]. Every read
// comes in as a proven one. One that turns out to be a compared one goes on, as half of its work is
// done. One that needs a walk leaves its place, and comes again as a walk. One that waits for a slow
// Redis weighs nothing for so long.
//
// # Who is let in
//
//   - A read for which there is room is let in at once, whoever asks. The others wait.
//   - In a burst they wait for [Options.Wait] at most, and the oldest is let in first: all have
//     their turn soon.
//   - When there was always one that waited for 100 ms, more come than can be answered. In such an
//     overload a read waits for a tenth of the time; no more wait than may be under way; and the
//     newest is let in first, as the clients of the others give up sooner. One that is too many is
//     refused as it comes.
//   - Of several callers, the next read is of the one with the fewest under way, and of its viewers
//     of the one with the fewest. One is too many if no other caller or viewer has more that wait;
//     else the oldest of that one is refused for it.
//   - Walks wait apart, five times as long, as few fit. While reads and walks wait, each have half of the weight. One walk may always
//     be under way, so that sets that are missing come back under any load.
//
// # How many
//
// The time of proven reads says how busy the servers and the process are, as all of them do the
// same. What they usually take is learnt: see law. While they take less than four times as long and
// reads wait, the limit rises by one a round, of 32 reads or a tenth of a second; when they take
// more than six times as long, it falls by a fifth. It neither falls below [Options.Least], which
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
// The weight of what is under way exceeds the limit only by one walk where no other is under way,
// by what reads turned out to weigh more than was known, by those that waited for Redis, and after
// the limit fell. A read that waits is let in or refused, once, within Options.Wait, a walk within five times as long. What has left
// weighs nothing, and no caller or viewer is kept of which nothing is under way or waits.
package admit
