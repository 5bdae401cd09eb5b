// Package push brings an event to the phones and browsers of the members that it is for.
//
//	event      notify   one task an event, whichever way it came in: a row of the site's own
//	                    transaction, an entry of the stream, a request
//	targeting  target   one more page of the event's recipients: who has a device, who wants
//	                    it, who may see the photo that it is about
//	delivery   deliver  one task a device: looks again at what may have changed, and sends
//
// The deliveries and the next page are follow-ups of a page: they commit in the
// transaction that finishes it, so that a crash loses nothing and repeats nothing.
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
package push
