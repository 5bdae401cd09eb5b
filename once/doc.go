// Package once is a lock for work that exactly one of any number of processes must do,
// and another one again if it fails, at most so many times. When the work is done, a
// marker says so, and no process does it again.
//
//	db, err := once.OpenDB("user:password@tcp(127.0.0.1:3306)/shop")
//	err = once.Migrate(ctx, db)
//	o := once.New(once.NewMySQL(db), once.Options{})
//	did, err := o.Do(ctx, once.Key{Name: "digest/2026-11-26", Attempts: 3}, send)
//
// A name for each day makes a job of every day; examples/go has one of every minute. With [NewRedis] the states are in Redis.
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
//     some, as long as the store's clock is not behind where it was at the last acquisition
//     that was lost. A lease cannot stop a process that
//     was paused for longer than it; only the resource can, by refusing a lower fence.
//   - Every operation may be sent again by the same owner, because a client repeats a
//     command whose answer was lost, and the answer is as the first one, as long as the state is
//     kept: of a failure or a release until at least [DefaultAttempts] more attempts have
//     ended ([State].Ended). Owners are random, of 128 bits, and used for one attempt: each wait for a
//     turn makes one, and another one after an attempt that was handed back.
//   - Attempts never exceed max, and after done there is none until the state is forgotten.
//   - The context of the work ends before its lease, by the store's clock: the deadline counts
//     from before the request was sent, by the process' monotonic clock, less a margin
//     (run.go). A store grants from when it received it, so later. The command of activityd
//     once has a second process that gets each deadline by a pipe, and kills it.
//   - A waiter asks again when the attempt that it waits for has ended: after 0.5 to 1 s in
//     [Once.Do], and at the end of the lease that it saw. A notification of once:NAME makes it
//     sooner; nothing depends on one.
//   - After an attempt that failed, the next one is that of another process, if one waits in
//     [Once.Do]: a call whose own attempt failed pauses for longer than a waiter takes to look.
//   - A call that returned holds nothing, as long as the store answers: an acquisition whose
//     context ends goes on for up to a second and is then released, as one that is cut off
//     could be carried out after its release. Otherwise the name may be held for one lease.
//
// [MySQL] and [Redis] have the arguments for their fences. docs/proof.md says
// what is run to refute them.
package once
