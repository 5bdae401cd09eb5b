// Package push brings an event to the phones and browsers of the members that it is for.
//
//	event      notify   one task an event, whichever way it came in: a row of the site's own
//	                    transaction, an entry of the stream, a request
//	targeting  target   one more page of the event's recipients: who has a device, who wants
//	                    it, who may see the photo that it is about
//	delivery   deliver  one task for up to 256 devices, or for the burst that waits for one: looks again at what
//	                    may have changed, and sends
//
// What is for few devices is sent by the task that targets it, see [Handler]. Else the deliveries and the next page are
// follow-ups of a page: they commit in the transaction that finishes it, so that a crash loses nothing and repeats nothing.
//
// # What is promised
//
// Each event is accepted at least once for each device that it is for, by the device's
// push service, and at most once unless an answer was lost or the process died between the
// answer and the commit of the receipt. Such a double carries the same collapse id, so that
// the device shows one.
//
// A notification about a photo is sent only if its recipient may see the photo at the
// instant of [MySQL.Look] immediately before.
//
// # Invariants
//
//   - Each event that was committed is targeted, once: its id is unique, and its row names the
//     one task that targets it. A task that comes again finds its own.
//   - Each device that an event is for has a delivery, or a receipt that says what became of it. Receipts
//     are written before the page ends, and may be written again (see [Targeting]).
//   - A delivery ends only when the receipts of all that it stands for are committed: accepted,
//     refused for good, not to be sent, or expired. Everything else is an error, or queue.Later.
//   - What was accepted is not sent again, from the commit of its receipt on: [MySQL.Look] finds
//     it, and no receipt overwrites it. Before the commit one process has the lease, and in it
//     one batch at a time has an event and a device.
//   - What is sent twice nevertheless has one collapse id, which depends on the event and the
//     device alone, and was counted when it may have happened.
//   - A message about a photo leaves only by a look that began after the claim, and at most
//     maxStale ago. Had the photo been hidden before the look, the look would not have seen it;
//     a process that was stopped in between does not send what it saw then.
//   - A burst shows no more events than were sent or are shown now, and none that may not be
//     shown: all that are pending are looked at again.
//   - An event and a device are in one task at a time: in one of its own event, or, if it has a pending
//     receipt, in that of its burst, or in the one whose mark the receipt has.
//   - A push service that fails holds up no other: there is a breaker for each origin, a bound
//     on how long a batch waits, and one on the messages that go on without it (breaker.go).
//   - A device is dropped only by an answer about that device, if it was not registered later;
//     or if it is a browser that was sent to in vain for three days, or four if it accepted something before.
//   - No token, endpoint or key leaves the database but to its push service: an [Address]
//     prints, logs and marshals as "secret", and reasons are words of a list.
//
// # Platforms
//
// A platform is a [Kind] that its own package exports: its settings, its addresses, its sender. Nothing
// here or elsewhere knows one by its name.
//
// What an answer means is decided twice, by pure functions. A sender maps status and reason to
// an outcome; judge maps that to a receipt, a pause, or a device that is dropped.
package push
