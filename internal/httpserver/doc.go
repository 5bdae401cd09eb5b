// Package httpserver opens a listener for HTTP, serves from it until it is told to
// stop, bounds what unknown clients can make it hold and log, and knows the names by
// which a server that asks for no token may be asked.
//
// # Unknown clients
//
// A server takes a bounded number of connections, and closes one more as it comes:
// see [Options]. What is not HTTP or TLS, and what the owner of the server reports by
// [Server.Refused], is summed up in one line a minute.
//
// # Names
//
// A server that only its own machine can reach is not safe from web pages yet. The
// owner of a page may have the page's name point to 127.0.0.1 (DNS rebinding): for a
// browser on this machine the server then belongs to the page, which may ask and read
// as it likes. What gives the page away is the Host of its requests, which is the
// page's name and cannot be chosen. So a server that asks for no token answers only
// under the names of this machine: see [Server.Knows] and [Server.LocalOnly].
package httpserver
