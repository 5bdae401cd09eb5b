// Package index keeps in Redis, for every member, a small sorted set of the contacts that uploaded
// last. It is only an index: it names contacts to look at, and never decides who may see a photo.
// It knows keys, scripts and sets, and nothing of SQL, HTTP or tasks.
//
// # The data
//
// The set user_<id> holds contact ids in decimal, scored by the unix time in seconds of that
// contact's last upload:
//
//	redis-cli ZREVRANGE user_12345 0 9
//
// Beside it, only while an update is under way, lies guard_{user_<id>}; the braces put both into
// the same cluster slot. The settings of the stored sets lie in a key of their own, see [Settings].
//
// # The invariants
//
// Let S be a set and low(S) its lowest score. As soon as the tasks of all committed changes have
// been applied:
//
//   - I1 prefix: every contact whose last upload is greater than low(S) is a member of S.
//   - I2 upper bound: a member's score is at least the date of that contact's newest photo that is
//     not private. Private photos are nothing to anybody else: a site may bound them, too, or not.
//   - I3 size: S has never more than Max members. S has fewer than Min members only when the member
//     has no more contacts that ever uploaded.
//   - I4 creation: a set comes into being only by a refill. A missing key means "not known", never
//     "no contacts".
//
// # Why they hold
//
// Tasks run in any order, more than once, and may crash between any two steps. No task writes the
// data of an event: every writer reads MySQL's current rows and makes the set agree. docs/why.md
// has the proofs and examples.
//
// One add. Every writer adds through the Lua function adder, in one step per set. It writes nothing
// to a missing set (I4). It refuses a contact older than low(S) once S has Min members: S may be
// cut off there, and adding would lower low(S) past newer contacts that are not in S (I1). Below
// Min the set is complete by I3 and any contact may be added. A score is only ever raised (ZADD
// GT), so a late or repeated upload changes nothing (I2). Then the cut of the lowest ranks beyond
// Max raises low(S).
//
// Guarded updates. Removals and refills act on earlier reads. So an update has three steps.
// [Index.Begin] makes sure that the guard of the set holds a token, and returns the token with the
// members. The task reads MySQL. [Index.Apply] runs a script that writes everything and deletes the
// guard, provided that the guard still holds that token. Hence
//
//   - a write is always computed from reads made after the previous write: a stale read never
//     overwrites a newer one.
//   - several updates of one set share the token that is there; the first to apply wins; the rest
//     conflict and begin again. An update always gets through, so there is no livelock.
//   - nothing is locked. The guard of a crashed process expires; a process that was paused finds
//     its token gone and writes nothing.
//   - tokens are random and never counted, so a token that was lost with a wiped Redis cannot come
//     back.
//
// Removals carry their refill. When a removal would leave fewer than Min members, the most recent
// contacts are read first and the same script removes and refills. Without a refill Apply answers
// [Conflict] rather than let a set fall below Min, even when members vanished since Begin. So no
// crash can leave a set that claims by its size to be complete and is not (I3).
//
// A refill adds and never replaces: an upload that was fanned out between the refill's read and its
// write stays. Only a refill without contacts deletes the set, and the guard with it, so that no
// update makes the set again from an earlier read.
//
// What leaves no trace. An add that finds no set, is refused as older than low(S), or finds its
// contact there with that score or a higher one, leaves no trace of its upload; an add that makes
// the set too large cuts off the trace of another add. An update under way may have read MySQL
// before that upload. So such an add deletes the guard, and the update conflicts and reads again.
// An add that leaves a trace, in a new member or a higher score, lets the update go on. The update
// respects the trace: it lowers only a score that is unchanged since Begin, and conflicts when a
// contact that it would remove came in or rose since.
//
// For the same reason an update that has nothing to write still applies: it ends the updates that
// read MySQL before it did. And an update that found a set conflicts when the set is gone: with it
// went the traces that adds left there since.
//
// Scores that are too high cost a look and hide nothing. An update that carries a refill lowers
// them: the contacts that the lower score leaves behind come in with it (I1), and an upload that
// the update did not read raised the score or deleted the guard (I2).
//
// Sets that are too large were written by another program. Begin fetches no more than Max + 1
// members, cuts a set that has more as an add would, and deletes the guard.
//
// Ghosts. A fan-out reads its followers before it adds, so it may add the uploader to the set of a
// member who removed that contact in between. A ghost violates none of I1 to I4; it takes one place
// and is filtered by the live query, whose reader reports the pair.
package index
