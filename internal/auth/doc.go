// Package auth holds the tokens of clients, the keys of the tokens of viewers, and the certificate of the server. It
// knows hashes, signatures, files, scopes and limits, and nothing of HTTP.
//
// # Tokens of clients
//
// A token is a line of a file or of the environment:
//
//	# name    scopes      hash of the secret       how much, if limited
//	homepage  read        sha256:9f86d081884c7d65… rate=500/s burst=1000
//	uploads   read,write  sha256:60303ae22b998861…
//	mailer    work        sha256:19d1b75e4c1f3b0a…  queues=mail
//
// The client alone has the secret, of 130 random bits. Its plain SHA-256 is stored: a slow hash protects passwords, which
// can be guessed. [Tokens.Check] compares with every token, each in constant time.
//
// The scope read is for answers, write for tasks, inspect for looking at what is for operators; admin includes these.
// work is for the tasks of the queues that the line names, and admin does not include it. write does not
// include read: a host that takes uploads needs no answers.
//
// A limit belongs to the name: neither a new file nor a new secret fills the bucket again. Each process counts for
// itself.
//
// # Tokens of viewers
//
// The site makes a viewer's token: a JSON Web Token that is signed with a key of the site and lives for a day at most. A
// viewer may ask for itself and for nothing else. [Viewers.Check] accepts a token if
//
//   - it is short, in the one compact form, and its JSON has no name twice
//   - its header has kid, alg and perhaps typ, and nothing else
//   - the key with that kid has that alg, which the file says and not the token
//   - the signature is right; then: it has begun, has not ended, and ends within a day
//   - it is for the audience of the server, or for none if the server has none
//   - its sub is a member's id in the plain form
//
// To revoke tokens, remove their key. The file has several, so that a new key comes before the old one goes.
//
// # Files that change
//
// A [Reloader] loads a file again when its time, size or mode changed. Content that cannot be used is logged once, and
// the previous content stays in use. A change is taken when the file has not changed for a second, so that it may be
// written in its place, as [AppendToken] and [AddViewerKey] do; a link, the mode and the owner stay.
package auth
