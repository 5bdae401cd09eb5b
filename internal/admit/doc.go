// Package admit bounds the reads under way, so that those that are let in end soon, however many
// come: the others are refused before anything is asked of Redis or MySQL.
//
// # Classes
//
// What a read costs is known only when it was looked at. A proven one takes a round trip to Redis
// and one to MySQL, and is by far the most frequent; a compared one takes up to three to MySQL; a
// walk keeps MySQL busy all the time. A place is weighted by how much a read of its class keeps
// busy while it is under way, see [Class]; that a walk also takes longer needs no weight, as it
// holds its place for longer. Every read comes in as a proven one. One that turns out to be a
// compared one goes on, as half of its work is done. One that needs a walk leaves its place, and
// comes again as a walk.
//
// # Who is let in
//
//   - A read for which there is room is let in at once.
//   - The others wait, shortly: [Options.Wait] at most, and not more than twice as many as may be
//     under way. Of those that wait the newest is let in first. Where more come than can be
//     answered, the oldest ones are worth the least: their clients are the next to give up. The
//     one that is too many is refused at once, and that is the oldest.
//   - Of several callers, the next read is of the one with the fewest under way, and the one that
//     is refused is of the caller with the most that wait.
//   - A viewer that has a quarter of the places, or two, under way and waiting, waits for no more.
//   - Walks wait apart, [Options.WalkWait] at most. They begin while no read waits and there is room
//     for their weight, of which they take half at most; but one may always be under way, so that
//     sets that are missing come back under any load.
//
// # How many
//
// The time of proven reads says how busy the servers and the process are, as all of them do the
// same. What they usually take is learnt: see law. While they take less than twice as long and
// reads wait, the limit rises by one a round, of 32 reads or a tenth of a second; when they take
// more than three times as long, it falls by a fifth. It neither falls below [Options.Least], which
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
// by what reads turned out to weigh more than was known, and after the limit fell. A read that
// waits is let in or refused, once. What has left weighs nothing, and no caller or viewer is kept
// of which nothing is under way or waits.
package admit
