// Package httpserver serves HTTP from a listener of its own, bounds the connections and log
// lines of unknown clients, and checks the Host of requests where there are no tokens.
//
// # Unknown clients
//
// A server has a bounded number of connections, and closes further ones at once: see
// [Options]. A line a minute counts requests that are not HTTP or TLS, and the refusals of
// [Server.Refused].
//
// # Hosts
//
// A server that only its own machine can reach is not safe from web pages yet. The owner of
// a page may have the page's name point to 127.0.0.1 (DNS rebinding): for a browser on this
// machine the server then belongs to the page, whose scripts can send requests and read the
// responses. Their Host is the page's name and cannot be chosen. So a server without tokens
// answers only under the names of this machine: see [Server.Knows] and [Server.LocalOnly].
package httpserver
