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
// A visit says which members are left and why. While a server is away, they are
// visited again after a pause, for as long as it takes, and behind the gate, which
// is shut meanwhile. They come back in smaller batches, so that what is too much
// for a server at once ends up as single members.
//
// Some errors belong to a member: a set that others keep changing, more contacts
// than can be read in time. Whoever has such an error alone, ten times, is given
// up: counted as [Failed], told to [Options.GaveUp], and the position moves on. A
// sweep that waited for him instead would stand still, once it is as far ahead of
// the position as it may be. Of a thousand such members it is not they who are to
// blame: the sweep ends, as it does with any other error.
//
// # Stop
//
// When the context ends, nothing new begins. Visits under way go on to their end,
// for a while, so that little has to be done twice.
package sweep
