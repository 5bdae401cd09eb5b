// Package check compares sets and answers with MySQL while the service runs, and judges the differences.
//
// # The mechanism, in the order of the files
//
// A look (look.go) locks nothing. It takes, in this order:
//
//	S1  the sets of some members
//	T   the truth: the relations of their members, the most recent contacts, and the last uploads of their owners
//	P   the pending tasks: first the tasks by which uploads of the contacts reach the sets, then the owners' own
//	S2  the sets again, where something differs
//
// Where S2 is not S1, the set moved, and nothing is known. A verdict (verdict.go) compares S1 with T. Each difference
// has a [Cause]. It is lag where P has a task that will see to it; else it is an error, or waste if it harms nothing. An
// error or waste counts as a [Finding] when three looks in a row saw the very same. [Checker.Repair] enqueues a refill, which
// mends every kind of set.
//
// The [Patrol] (patrol.go) looks at the sets and the answers of some of the reads, and at all sets, slowly, in a chain of
// tasks. It counts, logs and repairs. The command verify looks at the members that it names. An answer is compared as a
// set is: the answer by way of the index, a walk through MySQL, the pending tasks of the viewer and of both contacts,
// and both answers again.
//
// [Against] (against.go) compares the walk with a site's own statement, for verify --against. Both run in one snapshot,
// so that each difference is a fact, and the tables of that instant decide its [Class].
//
// # Why a finding is never false
//
// Let S1 be equal to S2, and let T differ by a change that T saw, say that c uploaded. The task of that change was
// committed with it, so before T was read. If neither it nor its successor is in P, it was finished before P was read.
// A task is finished only after it was applied, so its effect was in Redis before S2 was read: the difference is no work
// in progress. Nor can the set be ahead of T, as S1 was read before. Each difference is taken from a single statement
// of T, so T need not be a single instant.
//
// A successor is there when its predecessor is done: a fan-out enqueues it in the transaction that ends the page; an
// upload that finds no set enqueues the refill before it is finished; an upload absorbs waiting uploads while it runs
// itself; a task that is absorbed by its dedupe key leaves a task waiting. Hence the order within P: when the upload is
// no longer found, the refill is. Each question is a single statement, so that no task is missed between the two.
//
// Two gaps remain, for which a finding takes three looks, with random pauses between them: a set may have gone from S1 to
// something else and back, and a site that reports by HTTP commits its task a moment after its change.
//
// Reads trust the site's promise that a member's last upload is not before any of its photos that are not private. So a
// look compares these, too ([LowLastUpload]). No refill mends that.
package check
