// Package httpserver opens a listener for HTTP, serves from it until it is told to
// stop, bounds what strangers can make it hold and log, and knows by which names it
// may be asked for where nobody shows a token.
//
// # Strangers
//
// A server takes a bounded number of connections, and closes one more as it comes:
// see [Options]. What is not HTTP or TLS, and what its owner reports by
// [Server.Refused], is summed up in one line a minute.
//
// # Names
//
// A server that only its own machine can reach is not safe from web pages yet. A
// page's owner may have the page's name point to 127.0.0.1 (DNS rebinding): for a
// browser on this machine the server then belongs to the page, which may ask and
// read as it likes. What gives it away is the Host of its requests, which is the
// page's name and cannot be chosen. So who asks nobody for a token answers only
// under the names of this machine: see [Server.Knows] and [Server.LocalOnly].
package httpserver
