// Package push brings an event to the phones and browsers of the members that it is for.
//
//	event      notify   one task an event, by a row of the site's own transaction, an entry of the stream, or a request
//	targeting  target   a page of the event's recipients: their devices, their wishes, and whether they may see the photo that
//	                    the event is about
//	delivery   deliver  up to 256 devices of one platform: looks again, and sends
//	           burst    a device for which events of a burst wait: likewise, as one message
//
// Deliveries and the next page are follow-ups of a page, which commit in the transaction that finishes it. Two tables say
// what happens: push_events has an event once, by its id, and push_receipts the end of an event for a device, once.
// All else that waits is a task. Each step is a value of the next (see [Targeting] and [Deliveries]). Functions that read
// nothing decide: [Decide], decide and judge.
//
// # What is promised
//
//   - A committed event is targeted, once: its row names the task that targets it.
//   - Each device that it is for has a delivery, or a receipt that says why not. A delivery ends only when its
//     receipts are committed: accepted, refused for good, not to be sent, or waiting with a burst that has a task.
//   - A message leaves only by a look that began after the claim, at most maxStale before its sender gets it. A photo
//     that was hidden from its recipient before that look is not shown.
//   - A push service that fails holds up its own devices only: see [Deliveries]. Only an answer about a device drops it, if it
//     was not registered later.
//   - No token, endpoint or key leaves the database but to its push service: an [Address] prints, logs and marshals as
//     "secret", and reasons are words of a list.
//
// # Why nothing is sent twice
//
// An event and a device are in one task at a time. Targeting sends nothing, and the transaction that ends a page creates its
// deliveries, once. The rest of a delivery goes over to a follow-up by the transaction that ends it. An event that is to
// wait with its burst gets a pending receipt; from then on burst tasks alone send it. For a burst and a device at most one
// task waits, by its dedupe key, and at most one runs, by its ordering key.
//
// A task has one lease at a time, so one process works on it. An answer of a push service has a receipt within recordEvery
// and the commit, and a task ends after the receipts of its messages. A receipt that says accepted stays. A process that does the
// task again looks first, finds it, and sends nothing.
//
// So a push service accepts an event for a device twice in three cases only: the process died with the message in flight,
// or its answer not yet recorded; the process stood still, or MySQL was away, for longer than the lease, between its look
// and the receipt; or no answer came. A message that outlives its handler adds no case: its task comes again after the message
// has ended and was recorded. Doubles carry the same ids, so that the device shows one; possible doubles are counted.
//
// Two messages of a burst may be on their way at once: each task sends the events that it has read, and two tasks that meet know
// nothing of each other. The messages have one collapse id. The device shows the last to come; its number may be low, and its
// text may be the older text.
//
// # Platforms
//
// A platform is a [Kind] that its own package exports: its settings, its addresses, its sender. Nothing
// here or elsewhere knows a platform by its name. The meaning of an answer is decided twice: a sender maps status and reason to an
// outcome; judge maps that to a receipt, a pause, or a device that is dropped.
package push
