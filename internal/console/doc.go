// Package console is a page for people who look after activityd: queues, failures, tasks, events of push
// and the explanation of an answer. Html/template makes it on the server; it has no script.
//
// # Who may
//
// Where there are tokens, a browser signs in with the secret of a token: the scope inspect may look, admin may also
// pause, resume, retry and discard. Without tokens, the clients on this machine may both. The session is a cookie with a
// random id; the process has the secret and the end of the session in memory. So it is worth nothing elsewhere, after a restart or
// after signing out, and each request asks again whether there is the token.
//
// # Forged requests
//
// No GET changes anything. A POST is taken if Sec-Fetch-Site or Origin say that it comes from a page of this origin
// ([http.CrossOriginProtection]); an origin has a port. The cookie is SameSite=Strict, so that another site sends none. The Host
// is a name of this machine where there are no tokens, so a foreign name that points here reads nothing either
// ([httpserver.Server.Knows]).
//
// # Cost
//
// A request reads a bounded number of rows, by an index, without locks. A single request at a time asks MySQL, for [askTimeout] at
// most, or [actTimeout] for a change, by transactions of [inspect.Batch] tasks.
package console
