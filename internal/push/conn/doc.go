// Package conn keeps the connections to push services, by [net/http], and posts messages over them.
//
//   - Many requests share few connections: four links to a host, each with one connection of HTTP/2. A further link is used
//     when each has a hundred requests. A peer without HTTP/2 gets four connections a link.
//   - A connection carries no more streams than its peer allows. A new connection carries a single request until its answer, for a
//     second at most: Apple allows more only when it has verified a token. If the first message is refused, as by 503, the messages
//     that waited for it are not sent.
//   - The library sends a request again that its peer did not process, by GOAWAY or REFUSED_STREAM.
//   - A peer that is silent for [Options].Silence is asked by PING; after as much again the connection is lost.
//   - A request without an answer has a [Failure] with its fate: the peer may have processed it if the library read its body.
//   - After [Pool.Close] the connections end with the last request over them. A key of APNs has a pool of its own, so that no
//     connection sees two keys.
package conn
