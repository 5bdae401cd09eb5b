// Package check compares sets and answers with MySQL, and judges the differences.
//
// [Checker] compares sets with the contacts that they should hold, and answers by way of the index with the answer by
// its definition, while the service runs. It locks nothing. A difference is lag while a task is pending; else it is an
// error, or waste if it harms nothing. [Checker.Repair] mends errors and waste by refills. [Patrol] compares some of
// the reads, and all sets, slowly, in a chain of tasks; the commands verify and show compare the members that they name.
//
// [Against] compares the read with a site's own statement. For each member, the statement and the walk, the definition
// of the answer from MySQL alone, run in a transaction that sees a single instant. So each difference is a fact. The
// tables at that instant decide its [Class].
//
// # Why a finding is never false
//
// A look at a set is, in this order:
//
//	S1  the set
//	T   the truth: the relations of its members, and the most recent contacts
//	P   the pending tasks: first the tasks by which uploads of the contacts reach the set, then the member's own
//	S2  the set again
//
// Let S1 be equal to S2, and let T differ from them by a change that T saw, say that c uploaded. The task of that
// change was committed with it, so before T was read. If neither it nor its successor is in P, read after T,
// it was finished before P was read. A task is finished only after it was applied, so its effect was in Redis before
// S2 was read. A set that is equal to S2 before T and after P holds everything that T saw: the difference is no work
// in progress but an error. Nor can the set be ahead of T: S1 was read before it. Each difference is taken from a
// single statement of T, so T need not be a single instant.
//
// A successor is always there when its predecessor is done: a fan-out enqueues it in the transaction that ends the
// part; an upload that finds no set enqueues the refill before it is finished; an upload absorbs waiting uploads while
// it runs itself; a task that is absorbed by its dedupe key leaves a task waiting. Hence the order within
// P: when the upload is no longer found, the refill is. Each of the two questions is a single statement, so that a task
// that is replaced by its successor is not missed between them.
//
// So a look says that the set moved, and nothing is known; or that it is right; or that a task is pending, be it
// waiting, scheduled, paused or running: lag. Dead tasks are not pending. Else there is a suspicion. Two gaps remain:
// the set may have gone from S1 to something else and back, and a site may commit its task a moment after its change,
// as sites do that report by HTTP. So a suspicion becomes a finding when three looks in a row have seen the very same
// thing, with pauses between them that grow and are random.
//
// An answer is compared likewise: the truth (a walk through MySQL), the pending tasks of the viewer and of both
// contacts, the answer by way of the index, the truth again. Answers that came from MySQL anyway are not counted.
//
// Both ways of answering trust the site's promise that a member's last upload is not before any of its photos that are
// not private. So each look also compares, of the members themselves, last_upload with the newest photo
// ([LowLastUpload]). No refill mends that.
package check
