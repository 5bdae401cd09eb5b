// Package push brings an event to the phones and browsers of the members that it is for.
//
//	event      notify   one task an event, whichever way it came in: a row of the site's own
//	                    transaction, an entry of the stream, a request
//	targeting  target   a page of the event's recipients: who has a device, who wants the event, who may see the photo that
//	                    it is about
//	delivery   deliver  up to 256 devices of one platform: looks again at what may have changed, and sends
//	           burst    a device for which events of a burst wait: likewise, as one message
//
// Deliveries and the next page are follow-ups of a page, which commit in the transaction that finishes it. Two tables say
// what happens: push_events has an event once, by its id, and push_receipts what became of it, a row for each event and
// device. Everything else that waits is a task. Each step is a value of the next (see [Targeting] and [Deliveries]); what is
// decided is decided by functions that read nothing: [Decide], decide and judge.
//
// # What is promised
//
//   - A committed event is targeted, once: its row names the one task that targets it.
//   - Each device that it is for has a delivery, or a receipt that says what became of it. A delivery ends only when its
//     receipts are committed: accepted, refused for good, not to be sent, or waiting with a burst that has a task.
//   - A message leaves only by a look that began after the claim, at most maxStale before it is given to its sender. A photo
//     that was hidden from its recipient before that look is not shown.
//   - A push service that fails holds up no other: see [Deliveries]. A device is dropped only by an answer about it, if it
//     was not registered later.
//   - No token, endpoint or key leaves the database but to its push service: an [Address] prints, logs and marshals as
//     "secret", and reasons are words of a list.
//
// # Why nothing is sent twice
//
// An event and a device are in one task at a time. Targeting sends nothing, and the transaction that ends a page creates its
// deliveries, once. What is left of a delivery goes over to a follow-up by the transaction that ends it. An event that is to
// wait with its burst gets a pending receipt; from then on burst tasks alone send it, of which one for a burst and device
// waits at most, by its dedupe key, and one runs at most, by its ordering key.
//
// A task has one lease at a time, so one process works on it. What a push service accepted has a receipt within recordEvery
// and the commit, and a task ends after the receipts of what it has sent. A receipt that says accepted stays; whoever does the
// task again looks first, finds it, and sends nothing.
//
// So a push service accepts an event for a device twice in three cases only: the process died with the message in flight,
// or its answer not yet recorded; the process stood still, or MySQL was away, for longer than the lease, between its look
// and the receipt; or no answer came. A message that a handler waits for no longer is no such case: its task comes again after
// it has ended and was recorded. Doubles carry the same ids, so that the device shows one; those that may have happened are
// counted.
//
// Of a burst, two messages may be on their way at once: each task sends what it has, and of two that meet neither knows the
// other's. They have one collapse id. The device shows the one that comes last; its number may be low, and its text may be
// the older one.
//
// # Platforms
//
// A platform is a [Kind] that its own package exports: its settings, its addresses, its sender. Nothing
// here or elsewhere knows one by its name. What an answer means is decided twice: a sender maps status and reason to an
// outcome; judge maps that to a receipt, a pause, or a device that is dropped.
package push
