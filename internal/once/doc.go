// Package once is a lock for work that exactly one of any number of processes must do,
// and another one again if it fails, at most so many times. When the work is done, a
// marker says so, and no process does it again.
//
// # The state machine
//
// A [Store] keeps one [State] for each name. [Step] is the state machine, a pure
// function; a store only makes it atomic. With now the store's clock, max the attempts
// that are allowed, and "expired" a lease whose end has come:
//
//	state, before          operation     state, after           outcome
//	---------------------- ------------- ---------------------- -------------
//	none, or forgotten     acquire       held, attempt 1        OK
//	free, attempts < max   acquire       held, attempt + 1      OK
//	free, attempts >= max  acquire       exhausted              OutOfAttempts
//	held by the caller     acquire       held, same attempt     OK
//	held by another        acquire       -                      Busy
//	held, expired, < max   acquire       held, attempt + 1      OK
//	held, expired, >= max  acquire       exhausted              OutOfAttempts
//	free, or held, expired acquire, late -                      Lost
//	done                   acquire       -                      AlreadyDone
//	exhausted              acquire       -                      OutOfAttempts
//	held by the caller     extend        held, a new lease      OK
//	held by the caller *   done          done                   OK
//	held by the caller *   fail, < max   free                   OK
//	held by the caller *   fail, >= max  exhausted              OK
//	held by the caller *   release       free, attempt - 1      OK
//	ended by the caller    the same      -                      OK, whatever it is now
//	anything else          all but acq.  -                      Lost
//
//	* also after the lease expired, as long as no other process has acquired it
//
// An acquisition is late if its owner has had its attempt: the request was held up on its way,
// or sent twice. An attempt that it began would be that of no process.
//
// The known recipe for such locks has a process that did not get the lock look again
// later, and tells five cases apart. They are rows of the table: another one changed
// it (held by another: look again later), it is gone (none), it says DONE (done), it is
// as it was (expired: take it, attempt + 1), and another one took it at the same moment
// (Busy: look again later).
//
// A state is forgotten when it was kept for [Terms].Keep after its last change or the
// end of its lease. Then the name is as new, but for its fencing token.
//
// # Invariants
//
//   - At any time at most one owner has a lease that has not expired.
//   - Each acquisition that begins an attempt has a [Fence] that is higher than all before
//     it for that name: by counting, as long as the store keeps its data. If it has lost
//     some, in Redis by a new epoch, and in MySQL as long as the database's clock is not
//     behind where it was at the last acquisition that was lost. A lease cannot stop a process that
//     was paused for longer than it; only the resource can, by refusing a lower fence.
//   - Every operation may be sent again by the same owner, because a client repeats a
//     command whose answer was lost, and the answer is as the first one, as long as the state is
//     kept: of a failure or a release until at least [DefaultAttempts] more attempts have
//     ended ([State].Ended). Owners are random, of 128 bits, and used for one attempt: each wait for a
//     turn makes one, and another one after an attempt that was handed back.
//   - Attempts never exceed max, and after done there is none until the state is forgotten.
package once
