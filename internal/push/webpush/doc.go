// Package webpush sends notifications to browsers: RFC 8030 (Web Push), RFC 8291 (their
// encryption) and RFC 8292 (VAPID: a push service knows the sender).
//
// # The endpoint is an attacker's input
//
// A subscription comes from a browser, so anyone with an account chooses the URL that is
// posted to. Hence: https only, no user info, at most 2,048 bytes, and a host that is known: the push services of Chrome,
// Firefox, Edge and Safari, and hosts that the operator names, and answers for their addresses. A subscription at
// another host is refused when it is registered, and none is sent to, as the setting may change. No redirect is followed, and
// 16 KiB of an answer and of its header are read. Answers cannot choose words for logs, metrics or receipts: unknown reasons are
// named after their status.
//
// # Answers about a subscription, and about all
//
// A push service answers 401 or 403 both to a token that it never takes and for a subscription that was made with another key
// than ours, as any member can register. The first holds up all its devices, the second must hold up its own. So
// [push.Result].Origin is set with [push.Credentials] only if the push service took nothing under our key in the
// last ten minutes.
//
// Likewise 429 and the 406 of Edge: the first is about its subscription (RFC 8030, 8.4). If nothing was taken since, the next
// is about the push service: it is then left alone for as long as it asks.
package webpush
