// Package api is activityd's HTTP interface: the read, the enqueuing of tasks and of
// events, the devices of members and their settings, tasks for workers in the site's programs, and the two health
// checks. It reaches everything else through [Reader], [Enqueuer], [Leaser], [Push],
// [AddressChecker], [Authorizer] and [Viewers].
//
// The contract is openapi.yaml beside this file, served at /openapi.yaml. Tests
// hold every route and every response against it. The table in route.go has all routes.
//
// # From a request to an answer
//
//	begin      HEAD becomes GET
//	 └ observe    request id, allowed origins, the response to an error, metrics, one log line
//	    └ (echo finds the route)
//	       └ require   a token with the right scope, within its limit; without tokens, a Host of this machine
//	          └ deadline  from the beginning of observe on
//	             └ recovered  a panic becomes an error with its stack
//	                └ handler    reads the input strictly, calls one interface, writes JSON
//
// Under overload most requests are reads that the Reader refuses, in microseconds: see
// BenchmarkRefused. So a viewer's token is not verified while reads are refused.
//
// A handler either writes its whole response or returns an error. Errors become responses
// in one place (problem.go): the answer to refused input names the field and the reason; the answer to
// all further errors says whether to try again, and the log has the cause.
//
// # Strict input
//
// Package strictjson reads all bodies, and refuses unknown, repeated and misplaced
// fields. Parameters and headers are read in the same way. A problem names all faults of a request
// at once. A batch is taken whole or not at all. A message about the address of
// a device does not show it: it is a secret, and messages are logged.
package api
