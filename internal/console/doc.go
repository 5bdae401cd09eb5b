// Package console is a page for people who look after activityd: queues, failures, tasks, events of push, names of
// once and the explanation of an answer. It is made on the server, by html/template; a script only refreshes it.
//
// # Who may
//
// Where there are tokens, a browser signs in with the secret of one: the scope inspect may look, admin may also
// retry and discard. Without tokens, the clients on this machine may both. The session is a cookie with the secret and an
// end in it, sealed by a key of this process (AES-GCM): it is worth nothing elsewhere, or after a restart, and each request asks
// again whether there is the token.
//
// # Forged requests
//
// No GET changes anything. A POST is taken if all of these hold:
//
//   - Sec-Fetch-Site or Origin say that it comes from a page of this origin ([http.CrossOriginProtection]). An
//     origin has a port: neither another site nor another server on this host is one.
//   - Its field form is the HMAC, by a key of this process, of two cookies of the browser: one that each browser is
//     given, and the session. A page of another origin can read neither them nor the field. This holds for a browser, or behind a
//     proxy, that sends neither of the headers.
//   - The cookies are SameSite=Strict, so that other sites send none.
//
// The Host is one of this machine where there are no tokens, so a foreign name that points here reads nothing either
// ([httpserver.Server.Knows]).
//
// # What it costs
//
// Whatever there is, a request reads a bounded number of rows, by an index, without locks; one request at a time asks
// MySQL, for [askTimeout] at most. The counts of the queues are made beside it, for [lookTimeout] at most. A change is made in transactions of [inspect.Batch] tasks, for [actTimeout] at most.
//
// Nothing of it is for a script: the Content-Security-Policy allows the two files of this package alone.
package console
