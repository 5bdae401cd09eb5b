// Package sweep visits the members of a range, each once, for work that looks at
// all of them and takes long: batches of many members, several at once, as many as
// the pace allows; and that may be stopped, or killed, and go on later.
//
//	Members ──> batch ──> gate ──> visit ──┐
//	            batch ──> gate ──> visit ──┼──> position, counts ──> Saved
//	            batch ──> gate ──> visit ──┘
//
// # Position
//
// Batches end in any order. The position is the member up to whom everything is
// done: it moves when the batch behind it ends, over all that have ended already.
// Only what lies below it is counted, so that a sweep which is resumed at a
// position, with its counts, counts every member once, however the one before it
// ended. What lay beyond is visited again; visits must be idempotent.
//
// # Errors
//
// A visit says which members are left and why. If that may pass, they are visited
// again after a pause, for as long as it takes, and behind the gate, which is shut
// while a server is away. They come back in smaller batches, so that what is too
// much for a server at once ends up as single members, and one on whom every
// visit fails holds up nobody else. Any other error ends the sweep.
//
// # Stop
//
// When the context ends, nothing new begins. Visits under way go on to their end,
// for a while, so that little has to be done twice.
package sweep
