// Package broadcast has the broadcast members: those with so many followers that an upload of theirs is not
// written to the set of each. It is written to the broadcast set instead, of which there are
// [member.Copies], and every read looks at one of them beside the viewer's set. docs/broadcast.md has the argument why
// answers stay exact.
//
// A copy is a set like all others (package index), of a member that does not exist: its contacts are the
// broadcast members, and itself, so that it is never empty while there are any. It has them all, whatever max is. So
// uploads, refills, repairs and the audit need no way of their own for it: a [Truth] says who follows whom.
//
// # States
//
// What a broadcast member is, is a row of broadcast_members:
//
//	        add             settle after 4 s
//	none ────────> joining ──────────────────> broadcast
//	                 │  ^                          │
//	          remove │  │ add               remove │
//	                 └──┴──────> leaving <─────────┘
//	none <──────────────────────────┘
//	  a whole fan-out, then settle after 4 s
//
// An operator adds and removes. So do fan-outs, which add a member when they come to many followers; and looks, once a day, at
// a member that was added so, which remove it when it has half as many, or when no number is set.
//
// A member that is joining or leaving is fanned out to its followers and to the copies. Only one that is broadcast is
// written to the copies alone. A change of state has a number of its own and a task (package
// tasks), which carries it through. An operation that is taken back in the middle has another number then, and
// the task of the former one ends.
//
// # Settling
//
// Two things may be known for some moments longer than they are true, at most for three seconds:
// that there are no broadcast members, to a read that finds no copy; and what one of two nodes
// answered, to a read that waits for the other. So a row is there for 4 s before its member's fan-out ends,
// and for 4 s after the fan-out of the last page, before it is taken away.
package broadcast
