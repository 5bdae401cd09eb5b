// Package history holds the proof that the index is right at rest and private at
// every moment. It has no code of its own.
//
// A history is a small site and a sequence of steps: members come and go, call each other
// contacts, block, upload (for others or in private), hide, show and delete; the tasks of
// these changes are delivered late, twice and in any order; handlers and reads are paused
// before and after each of their calls, while others go on; processes crash at any of these
// points; sets expire, Redis fails and loses everything. One scheduler chooses the steps,
// so a history is repeated by its choices, which come from one number, its seed.
//
// What a last upload bounds differs between histories: the photos that are not private, so
// that showing a photo is reported; all photos, so that the private upload is; or those that
// are not private and some others, so that showing is reported, and a private upload at times.
// See privateUploads.
//
// In every second random history members become broadcast members and cease to be, also while nothing else
// changes: that is no change of any answer. See broadcast_test.go.
//
// What is expected is stated in world_test.go and requests_test.go, without the code
// that it judges:
//
//   - At rest, when all tasks have run: every set keeps I1 to I3 of package index and
//     is that of a member, and every viewer is shown what the definition says, with the
//     index and without.
//   - At every step: no set holds more than Max members, and a set comes into
//     being only by a refill (I4). An update conflicts only if another step wrote
//     since it began.
//   - Of every response, whenever it was asked for: at one instant of its request
//     it was the newest photos of one contact that the viewer could see then. One
//     that did without the index was the answer by the definition at one instant.
//   - At rest, in the enumerated histories: no contact's score is higher than its last
//     upload, unless a handler was paused.
//   - Tasks come to an end, and none is dead. A ghost that a read has looked at is
//     gone when the tasks have run that the read asked for.
//
// There are two kinds of history. Random ones (history_test.go) have everything in
// them; they run on indextest.Memory, which a test of that package holds against the
// scripts, and a part of them on a real Redis.
//
// Enumerated ones (orders_test.go, enumerate_test.go) take scripts of 7 events over
// 2 viewers and 3 contacts: changes, losses, reads, refills. They are
//
//   - every order of every choice of the events, each delivered as soon as it has
//     happened;
//   - every order of all of them, delivered when all have happened, in the same
//     order and in the reverse one;
//   - the events in their order, delivered in every order;
//   - of the first 4, every way in which events and deliveries can alternate;
//
// and each of these again with a crash, after which the task comes again at once,
// with one after which it comes again last, and with a pause until all others have
// ended, at every point of every handler and read.
//
// mutations_test.go shows that the proof can fail: it leaves out one rule at a time
// and expects a history to notice.
//
// "make test" runs some of it; "make prove" a million random histories and the
// enumeration in full. A failure is shrunk to the few steps that matter and printed,
// with a seed that "make prove SEED=…" repeats.
package history
