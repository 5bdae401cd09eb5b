// Package index keeps in Redis, for every member, a small sorted set of the contacts
// that uploaded last. It is only an index: it says where to look, never what may be
// shown. It knows keys, scripts and sets, and nothing of SQL, HTTP or tasks.
//
// # The data
//
// The set user_<id> holds contact ids in decimal, scored by the unix time in
// seconds of that contact's last upload:
//
//	redis-cli ZREVRANGE user_12345 0 9
//
// Beside it, only while an update is under way, lies guard_{user_<id>}; the
// braces put both into the same cluster slot. The settings under which the sets
// were built lie in one key of their own, see [Settings].
//
// # The invariants
//
// Let S be a set and low(S) its lowest score. As soon as the tasks of all
// committed changes have been applied:
//
//   - I1 prefix: every contact whose last upload is greater than low(S) is a
//     member of S.
//   - I2 upper bound: a member's score is at least the date of that contact's
//     newest photo.
//   - I3 size: S has never more than Max members, and fewer than Min only when
//     the user has no more contacts that ever uploaded.
//   - I4 creation: a set comes into being only by a refill. A missing key means
//     "not known", never "no contacts".
//
// # Why they hold
//
// Tasks run in any order, more than once, and may crash between any two steps. The
// invariants hold because no task writes what an event said: every writer reads
// MySQL's current rows and makes the set agree.
//
// One add. Every writer adds through one Lua function, adder, in one step per
// set. It writes nothing to a missing set (I4). It refuses a contact older than
// low(S) once S has Min members: S may be cut off there, and behind the cut
// there may be contacts that are newer than the refused one and not in S, so
// that adding it would lower low(S) past them and break I1. Below Min the set is
// complete by I3, there is no cut, and any contact may be added. A score is only
// ever raised (ZADD GT), so a late or repeated upload changes nothing and I2
// stays. Then the lowest ranks beyond Max are cut, which raises low(S) and so
// keeps I1.
//
// Guarded updates. Adding is safe against everything because it only raises;
// removing and refilling are not, because they act on what was read earlier.
// So each such update is: [Index.Begin], which makes sure that the guard of the
// set holds a token and returns the token with the members; then the reads from
// MySQL; then [Index.Apply], one script that writes everything, provided that
// the guard still holds that token, and deletes the guard. Hence
//
//   - a write is always computed from reads made after the previous write: had
//     another one come between, the token would be gone. A stale read never
//     overwrites a newer one.
//   - several updates of one set share the token that is there; the first to
//     apply wins, the others start again. One always gets through, so there is
//     no livelock. (Were Begin to overwrite the token, many concurrent updates
//     could keep each other from ever finishing.)
//   - nothing is locked. A process that crashes leaves a guard that expires; a
//     process that is paused for an hour finds its token gone and writes
//     nothing.
//
// Tokens are random and never counted, so a token that was lost with a wiped
// Redis cannot come back.
//
// Removals carry their refill. When a removal would leave fewer than Min
// members, the most recent contacts are read first and the same script removes
// and refills. Apply insists: without a refill it answers [Conflict] rather than
// let a set fall below Min, even when members vanished since Begin. So no crash
// can leave a set that claims by its size to be complete and is not (I3).
//
// A refill adds and never replaces: an upload that was fanned out between the
// refill's read and its write stays. Members that are no contacts any more are
// removed by it. Only a refill without contacts deletes the set: a missing set is
// unknown, so that this is as safe as an eviction, and the guard is deleted with it, so
// that no update makes the set again from what it read before. That is how the set of a
// deleted member goes.
//
// What leaves no trace. An add that finds no set, is refused as older than low(S),
// or finds its contact there already, with that score or a higher one, leaves no
// trace of its upload; an add that makes the set too large cuts off the trace of
// another. But an update may be under way that read MySQL before that upload, and
// is about to make the set, or to remove and refill so that low(S) falls below
// the upload, or to remove or lower the contact. So such an add deletes the guard,
// and that update conflicts and reads again. An add that does leave a trace, in a
// new member or a higher score, lets the update go on, which respects the trace: it
// adds and never replaces, lowers only a score that is still what it was at Begin,
// and conflicts when a contact that it would remove came in or rose since Begin.
// (A contact that was no member of the site, and joined and uploaded after the
// update had looked, is one: no task but the upload's tells of it.)
//
// For the same reason an update that has nothing to write still applies: it ends
// those that read MySQL before it did. And an update that found a set conflicts when
// the set is gone, be it expired or evicted: with it went the traces that adds left
// there since.
//
// Scores that are too high. They bound what they should, and cost a look. They come
// from a site that took a last upload back, as of a member who was deleted and inserted
// again, or from another Redis. An update that carries a refill lowers them: the contacts
// that the lower score leaves behind come in with it (I1), and no upload is hidden,
// because one that the update did not read raised the score, or deleted the guard (I2).
//
// Sets that are too large. Another program may have written more than Max members,
// millions perhaps. Begin fetches no more than Max + 1, and cuts a set that has more as an
// add would: that raises low(S) and so keeps I1; and since what it cuts off may be the
// trace of an add, it deletes the guard.
//
// Ghosts. A fan-out reads its followers before it adds, so it may add the
// uploader to the set of a user who removed that contact in between. Such a
// member violates none of I1 to I4; it takes one place and is filtered by the
// live query, whose reader reports it so that the pair is looked at again.
package index
