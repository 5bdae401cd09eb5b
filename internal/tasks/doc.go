// Package tasks keeps the index true and notifies members: the kinds of task of this
// site, and a handler for each. Package queue keeps the tasks and has them worked on.
//
// # Tasks are hints
//
// A task says "look again at this contact of this user" or "at this uploader",
// and never names a value. Its handler reads the current rows and makes the sets
// agree, so tasks may run in any order, more than once, and after a crash
// anywhere. Package index says why the sets come out right.
//
//	type            subject    does
//	add_contact     the user   looks at (user, contact)
//	remove_contact  the user   the same
//	upload          uploader   writes to the first followers' sets, starts the chain
//	fan_out         uploader   the next page of the chain
//	fan_out_again   uploader   writes a page again when a node is back
//	broadcast       uploader   carries a change of a broadcast member through
//	broadcast_look  uploader   has it leave if it has few followers by now
//	refill          the user   reads the most recent contacts into the set; deletes
//	                           the set of a deleted member
//	refill_range    none       builds the sets of a range of members: see [RangeArgs]
//	check_range     none       compares the sets of a range: see package check
//	notify         the actor   tells members of an event: see package push
//	target         the actor   the same, the next page of its recipients
//	deliver        the event   sends it to devices of a platform
//	burst          the device  sends it the waiting part of a burst
package tasks
