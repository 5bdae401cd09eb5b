// Package history holds the proof that the index is right at rest and private at every moment. It has no code
// of its own.
//
// A history is a small site and a sequence of steps: members come and go, call each other contacts, block,
// upload (for others or in private), hide, show and delete; the tasks of the changes are delivered late,
// twice and in any order; handlers and reads are paused before and after each of their calls, while the rest
// go on; processes crash at any of the same points; sets expire, Redis fails and loses everything. A single
// scheduler chooses the steps. Its choices come from a number, the seed, which therefore repeats the history.
//
// The meaning of a last upload differs between histories. It bounds the photos that are not private, so that
// the site reports the showing of a photo. Or it bounds all photos, so that the site reports a private
// upload. Or it bounds the photos that are not private and some private photos: the site reports showing, and
// a private upload at times. See privateUploads.
//
// In every second random history members become broadcast members and cease to be, also while nothing else
// changes: no answer changes by it. See broadcast_test.go.
//
// world_test.go and requests_test.go state the expectations, without the code that they judge:
//
//   - At rest, when all tasks have run: every set belongs to a member and keeps I1 to
//     I3 of package index, and every viewer gets the answer of the definition, with the
//     index and without.
//   - At every step: no set holds more than Max members, and a set comes into
//     being only by a refill (I4). An update conflicts only if another step wrote
//     since it began.
//   - Of every response, at any time: at some instant of its request it was the newest
//     photos of a single contact that the viewer could see then. A response without the
//     index was the answer by the definition at some instant.
//   - At rest, in the enumerated histories: no contact's score is higher than its last
//     upload, unless a handler was paused.
//   - Tasks come to an end, and none is dead. A ghost that a read has looked at is
//     gone when the read's hints have run.
//
// There are two kinds of history. Random histories (history_test.go) contain every kind of step. They run on
// indextest.Memory, which a test of that package holds against the scripts, and a part of them on a real
// Redis.
//
// Enumerated histories (orders_test.go, enumerate_test.go) take scripts of 7 events over 2 viewers and 3
// contacts: changes, losses, reads, refills. They are
//
//   - every order of every choice of the events, each delivered as soon as it has
//     happened;
//   - every order of all of them, delivered when all have happened, in the same
//     order and in the reverse one;
//   - the events in their order, delivered in every order;
//   - of the first 4, every way in which events and deliveries can alternate;
//
// and each order again with a fault at every point of every handler and read: a crash after which the task
// comes again at once, a crash after which the task comes again last, and a pause until all other actors have
// ended.
//
// mutations_test.go shows that the proof can fail: it leaves out one rule at a time and expects a history to
// notice.
//
// "make test" runs a small part; "make prove" a million random histories and the enumeration in full. A failure
// is printed with a seed that "make prove SEED=…" repeats, step by step. TestPropertyIndexIsRightAtRest makes its
// choices by rapid, which shrinks a failure to the few steps that matter.
package history
