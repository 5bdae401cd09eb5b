// Package api is activityd's HTTP interface: the read, the enqueuing of tasks and of
// events, the devices of members and what they want to be notified of, and the two health
// checks. It reaches everything else through [Reader], [Enqueuer], [Leaser], [Push],
// [AddressChecker], [Checker], [Authorizer] and [Viewers].
//
// The contract is openapi.yaml beside this file, served at /openapi.yaml. Tests
// hold every route and every response against it.
//
// # From a request to an answer
//
//	admit      of reads: require, and a place, or a refusal; a deadline
//	 └ observe    request id, the response to an error, metrics, one log line
//	    └ crossOrigin for viewers: which pages may read the answer
//	    └ recover a panic becomes an error with its stack
//	       └ require   a token with the right scope, within its limit; without
//	          │        tokens, a Host of this machine
//	          └ handler   reads the input strictly, calls one interface, writes JSON
//
// Under overload most requests are reads that [Config.Limiter] refuses. So admit stands before the
// router, and sends an answer that is ready; BenchmarkRefused says what that costs.
//
// What is below /v1/queues is for workers in other programs, with the scope work: [Leaser]. A claim may
// wait for tasks; [waiters] says how.
//
// What is below /v1/me is for viewers themselves: there requireViewer stands for require, and
// the member is that of the token.
//
// A handler either writes its whole response or returns an error. Errors become responses
// in one place (problem.go): refused input is answered with the field and the reason; for
// all other errors the response says whether to try again, and the log has the cause.
//
// # Strict input
//
// Package strictjson reads all bodies, and refuses unknown, repeated and misplaced
// fields. Parameters and headers are read in the same way, and all faults of a request
// are named at once. A batch is taken whole or not at all. A message about the address of
// a device does not show it: it is a secret, and messages are logged.
package api
