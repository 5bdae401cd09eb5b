// Package webpush sends notifications to browsers: RFC 8030 (Web Push), RFC 8291 (their
// encryption) and RFC 8292 (VAPID, by which a push service knows the sender).
//
// # The endpoint is an attacker's input
//
// A subscription comes from a browser, so anyone with an account chooses the URL that is
// posted to, and the URL may mean another address later. Hence: https only, no user info,
// at most 2,048 bytes; public addresses only, which is checked when the subscription is
// registered and, because a name may resolve differently then, at each connection, on the
// address that is dialled; no redirects, no proxies, no decompression; at most 4 KiB of an
// answer and 16 KiB of its header are read. Answers cannot choose words for logs, metrics
// or receipts: unknown reasons are named after their status. Connections, tokens and what
// is known of push services are bounded in number, however many names are invented.
//
// An address that is not public when it is dialled is [push.Wait], not [push.Gone]: a
// resolver that answers everything with one private address, as captive portals do, must
// not prune all devices. The message waits until it expires.
//
// # Refused keys
//
// A push service answers 401 or 403 both to a token that it never takes and for a
// subscription that was made with another key than ours, which any member can register.
// The first holds up all its devices, the second must hold up one. So
// [push.Result.Origin] is set with [push.Credentials] only if the push service took
// nothing under our key in the last ten minutes.
package webpush
