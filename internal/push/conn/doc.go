// Package conn keeps the connections to push services, by [net/http], and posts messages over them.
//
// The package promises to the senders of the platforms:
//
//   - Many requests at once share few connections: four links to a host, each with one connection
//     of HTTP/2. A further link is used when each link has a hundred requests.
//     A peer without HTTP/2 is sent to by HTTP/1.1, over four connections a link: a request that waits for a
//     connection is in flight.
//   - A connection carries no more streams than its peer allows.
//     A new connection carries a single request until its answer, for a second at most: Apple allows more only when it
//     has verified a token.
//   - The library sends a request again that its peer did not process, by GOAWAY or REFUSED_STREAM.
//   - A peer that is silent for [Options].Silence is asked by PING; after as much again the connection
//     is lost. So a dead peer is noticed within ten seconds.
//   - A request without an answer has an [Error] with its fate: the peer has the request only if the library read its
//     body. Then the peer may have processed it, and its fate is unknown.
//   - A peer that refuses the first message over a connection, as by 503 with Retry-After, gets no message that waited here for the
//     first: none was sent.
//   - After [Pool.Close] the connections end with the last request over them. A key of APNs has a pool
//     of its own, so that no connection sees two keys.
package conn
