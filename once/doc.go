// Package once is a lock for work that a single process out of many must do. If the
// process fails, another process tries again, up to a limit of attempts. When the work is
// done, a marker says so, and no process does it again.
//
//	db, err := once.OpenDB("user:password@tcp(127.0.0.1:3306)/shop")
//	err = once.Migrate(ctx, db)
//	o := once.New(once.NewMySQL(db), once.Options{})
//	did, err := o.Do(ctx, once.Key{Name: "digest/2026-11-26", Attempts: 3}, send)
//
// A name for each day makes a daily job; examples/go has a job of every minute. With [NewRedis] the states are in Redis.
//
// # The state machine
//
// A [Store] keeps a [State] for each name. [Step] is the state machine, a pure
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
//	* also after the lease expired, as long as no process has acquired it since
//
// An acquisition is late if its owner has had its attempt: the request was held up on its way,
// or sent twice. An attempt that it began would belong to no process.
//
// In the known recipe for a lock of this kind a process that did not get the lock looks again
// later, and tells five cases apart. They are rows of the table: another process changed
// it (held by another: look again later), it is gone (none), it says DONE (done), it is
// as it was (expired: take it, attempt + 1), and another process took it at the same moment
// (Busy: look again later).
//
// A state is forgotten when it was kept for [Terms].Keep after its last change or the
// end of its lease. Then the name is as new, but for its fencing token.
//
// # Invariants
//
//   - At any time at most a single owner has a lease that has not expired.
//   - Each acquisition that begins an attempt has a [Fence] that is higher than all before
//     it for that name: by counting, as long as the store keeps its data. If the store has lost
//     some, as long as its clock is not behind where it was at the last acquisition that was
//     lost. A lease cannot stop a process that was paused for longer than the lease; only the
//     resource can, by refusing a lower fence.
//   - An owner may send every operation again, because a client repeats a command whose answer
//     was lost. The answer is the same as the first, as long as the state is kept: for a failure
//     or a release until at least [DefaultAttempts] more attempts have ended ([State].Ended).
//     An owner is random, of 128 bits, and has a single attempt: each wait for a turn makes an
//     owner, and a new owner after an attempt that was handed back.
//   - Attempts never exceed max, and after done there is none until the state is forgotten.
//   - The context of the work ends before its lease, by the store's clock: the deadline counts
//     from before the request was sent, by the process' monotonic clock, less a margin
//     (run.go). A store grants from when it received it, so later. The command of activityd
//     once has a second process that gets each deadline by a pipe, and kills it.
//   - A waiter asks again when the attempt that it waits for has ended: after 0.5 to 1 s in
//     [Once.Do], and at the end of the lease that it saw. A notification of once:NAME makes it
//     sooner; nothing depends on notifications.
//   - After an attempt that failed, another process gets the next attempt, if it waits in
//     [Once.Do]: a call whose own attempt failed pauses for longer than a waiter takes to look.
//   - A call that returned holds nothing, as long as the store answers: an acquisition whose
//     context ends goes on for up to a second and is then released. If the client cut it off, the
//     server could carry it out after the release. Otherwise the name may be held for a lease.
//
// [MySQL] and [Redis] have the arguments for their fences. docs/why.md lists the tests
// that try to refute them.
package once
