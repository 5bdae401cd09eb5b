// Package push brings an event to the phones and browsers of the members that it is for.
//
// A site's row, an entry of the stream or a request is a task. [Handler] does the tasks of all kinds, by the steps of one function:
//
//	read     the events of the tasks; the event of a notify task is stored
//	address  the recipients of notify and target tasks. Up to 256 are the task's own, unless its row lies in a queue of other
//	         tasks; of more, follow-ups are deliver tasks for 256 members each, and a target task for the next page
//	look     the devices of the recipients, their wishes, their receipts, and whether they may see the photo: one statement
//	decide   send, skip, or wait: for the end of quiet hours, or with a burst
//	send     the messages, all at once
//	judge    the answers: receipts, devices that are gone, a pause
//	record   the receipts, by one statement for all answers of 20 ms
//
// Each step is a value of the next. [Decide], decide and judge are pure. The finish of a task deletes it, and inserts its follow-ups in
// the same transaction: the rest of a page, and the devices that wait. A burst task sends the events of a burst that wait for a device,
// as one message. Two tables tell the past: push_events has an event once, by its id; push_receipts has the end of an event for a
// device, once. All else that waits is a task.
//
// # What is promised
//
//   - A committed event is done by one task, whose number it has: a task with the id of an event of another task is a repetition.
//   - Each device that an event is for gets the message, or has a receipt that says why not. A task ends only when
//     its receipts are committed: accepted, refused for good, not to be sent, or waiting with a burst that has a task.
//   - A message leaves only by a look that began after the claim, at most maxStale before its sender gets it. A photo
//     that was hidden from its recipient before that look is not shown.
//   - A push service that fails holds up its own devices only: see [Handler]. Only an answer about a device drops it, if it
//     was not registered later.
//   - No token, endpoint or key leaves the database but to its push service: an [Address] prints, logs and marshals as
//     "secret", and reasons are words of a list.
//
// # Why nothing is sent twice
//
// An event and a device are in one task at a time. The transaction that ends a task creates its follow-ups, once, and they take over
// the devices that are not done. An event that is to wait with its burst gets a pending receipt; from then on burst tasks alone send
// it. For a burst and a device at most one task waits, by its dedupe key, and at most one runs, by its ordering key.
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
