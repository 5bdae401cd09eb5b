// Package conn keeps the connections to push services, by [net/http], and posts messages over them.
//
// What it promises to the senders of the platforms:
//
//   - Many requests at once share few connections: four links to a host, each with one connection
//     of HTTP/2. A link is used beside the others when those have a hundred requests each.
//     A peer without HTTP/2 is sent to by HTTP/1.1.
//   - A connection carries no more streams than its peer allows.
//     A connection that was just opened carries one request until that is answered, for a second at most, because
//     Apple allows more only when it has verified a token.
//   - What a peer did not process, as it says by GOAWAY or REFUSED_STREAM, the library sends again.
//   - A peer that is silent for [Options].Silence is asked by PING; after as much again the connection
//     is lost. So a dead peer is noticed within ten seconds.
//   - A request without an answer has an [Error] that says what is known: the peer has it only
//     if the library read its body. A request of which that is so may have been processed, and its fate is
//     unknown.
//   - A peer that asks all to wait, by 503 with Retry-After, gets nothing that waited here for the first request, or for a
//     connection of HTTP/1.1: that has its answer.
//   - After [Pool.Retire] the connections end with the last request over them. A key of APNs has a pool
//     of its own, so that no connection sees two keys.
package conn
