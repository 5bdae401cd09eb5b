// Package audit compares what Redis holds with what MySQL says, while the service
// runs: sets with the contacts they should hold, and answers by way of the index
// with the answer by its definition. It separates lag, for which a task is pending,
// from errors, which will stay, names the cause, and repairs by enqueuing refills. It
// locks nothing.
//
// # How an error differs from lag
//
// One look at a set is, in this order:
//
//	S1  the set
//	T   the truth: the relations of its members, and the most recent contacts
//	P   the pending tasks: first those by which uploads of the contacts concerned
//	    reach the set (upload, fan_out, fan_out_slots), then the member's own (add_contact,
//	    remove_contact, refill)
//	S2  the set again
//
// Let S1 be equal to S2, and let T differ from them by a change that T saw, say
// that c uploaded. The task of that change was committed with it, so before T was
// read. If neither it nor what follows from it is in P, which was read after T, it
// was finished before P was read. A task is finished only after it was applied, so
// its effect was in Redis before S2 was read. A set that is equal to S2 before T
// and after P holds everything that T saw; the difference is no work in progress but
// an error. Nor can the set be ahead of T: S1 was read before it.
//
// Each difference is taken from a single statement of T, so it does not matter
// that T is several statements, and not one instant: the argument is about the
// one statement that saw the change.
//
// "What follows from it" is always there when what it follows from is done. A
// part of a fan-out enqueues its successor in the transaction that ends it; an
// upload, or a part, that finds no set enqueues the refill before it is finished;
// an upload that absorbs others does so while it runs itself, and one that stands
// for others is still running when those are finished; a task that is absorbed by
// its dedupe key leaves another one waiting that will read what it would have
// read. Hence the order within P: when the upload is no longer found, the refill is.
// Each of the two questions is one statement, so that a task that is replaced by its
// successor is not missed between them.
//
// So one look ends in one of four ways:
//
//   - S1 and S2 differ: the set moved, nothing is known.
//   - There is no difference: the set is right.
//   - A task is pending, be it waiting, scheduled to be tried again, in a paused
//     queue, or running: lag. If it has waited for longer than [Options.LagLimit],
//     the lag is called lasting: nothing is lost, but an operator should look.
//   - Otherwise, a suspicion. Dead tasks are not pending: they will not run. Nor does
//     a part of a fan-out count that begins beyond the viewer.
//
// # Why a suspicion needs three looks
//
// The argument has two gaps. The set may have gone from S1 to something else and
// back (A-B-A). And a site may commit its task a moment after its change, as those
// do that report by HTTP. So a suspicion becomes a finding when three looks in a
// row have seen the very same thing, with pauses between them that grow and are
// random. A set that does not come to rest in seven looks is counted as unsettled, and
// is no error.
//
// # Answers
//
// An answer is compared likewise: the truth (a walk through MySQL), the pending
// tasks of the viewer and of both contacts, the answer by way of the index, the
// truth again. When the truth is the same before and after, every change that it
// saw is pending or in Redis by the time at which the index is asked. Answers that
// came from MySQL anyway are right by construction, and not counted.
//
// Both ways of answering trust the site's promise that a member's last upload is
// not before any of its photos that are not private. Where that is broken, both are wrong
// in the same way. So each look also compares, of the members themselves, last_upload with the
// newest photo that is not private ([LowLastUpload]). No task and no refill mends that.
//
// A last_upload that bounds private photos, too, keeps the promise as well, at a price:
// private uploads are fanned out, and take places in sets. The members whose newest photo
// is private show which of the two a site does ([MeaningOf]); they are counted without a second
// look.
//
// # What is harmless
//
// A ghost, a score that is too high, and the set of a deleted member break none of
// the invariants of package index: they cost a place, a look, or memory. They are
// findings of class [Waste], and are repaired, too. A lost set breaks no invariant
// either (a missing key means "not known"), but where the sets of all members are
// kept it costs each read a walk, and is an [Error].
//
// # The patrol
//
// [Patrol] audits while a process serves: a share of the reads, off their path, and
// one slow sweep over all members and then over the sets of no member. Both are walks
// of package bulk, which leave out a member at which a server fails, such as by a time
// limit on statements. An error that a look at no member meets as well is not due to
// the members: the patrol waits. Sets on a node of Redis that cannot be used are left out and
// counted.
//
// One process sweeps at a time: the one that holds the name activityd/audit-sweep (package
// once). Its round is kept in Redis, beside its fence: one that has begun with a higher fence
// is the only one that saves from then on. A restart goes on there. Nothing but effort depends
// on either, so Redis may lose them. After a minute of an outage the process hands the name
// back, since another one may reach the server that it cannot.
//
// The sweep alone would take hours or days to notice that Redis lost data. So a round stores
// the last loss of any node before it began ([index.Index.LostAt]). After a later loss an ordinary
// round ends at once, and a hurried one begins. It builds the sets that are missing, as package
// bulk does, and compares none, since those that might be old were deleted. It skips members
// whose sets cannot have been lost since all were there, which in a cluster is known by node
// ([index.Index.LostSince]). A hurried round goes on after another loss, and is followed by
// another hurried one: no set waits longer that way, and repeated losses cannot keep the sweep
// from ending. A sweep without a stored round hurries as well.
package audit
