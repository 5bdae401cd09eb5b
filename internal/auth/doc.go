// Package auth holds the tokens of clients, the keys of viewers' tokens, and the certificate of the server. It knows
// hashes, signatures, files, scopes and limits, and nothing of HTTP. A check that fails returns a [RefusalError].
//
// # Tokens of clients
//
// A token is a line of a file:
//
//	# name    scopes      hash of the secret       how much, where it is limited
//	homepage  read        sha256:9f86d081884c7d65… rate=500/s
//	uploads   read,write  sha256:60303ae22b998861…
//	mailer    work        sha256:19d1b75e4c1f3b0a…  queues=mail
//
// The client alone has the secret, of 130 random bits. The file has its plain SHA-256, as nobody guesses a random secret.
//
// The scope read is for answers, write for tasks, inspect for the console; admin includes all three. work is for the
// tasks of the queues in the line, and admin does not include it. write does not include read.
//
// A limit belongs to the name: neither a new file nor a new secret fills the bucket again. Each process counts alone.
// The requests of a second may come at once.
//
// # Tokens of viewers
//
// The site makes a viewer's token: a JSON Web Token that a key of the site signed. A viewer may ask for itself and for
// nothing else. [Viewers.Check] accepts a token if
//
//   - it is short, in the compact form, and its JSON has no name twice
//   - its header has kid, alg and perhaps typ, and nothing else
//   - the key with that kid has that alg by the file
//   - the signature is right; then: it has begun, has not ended, and ends within a day
//   - its audience is the server's, or none if the server has none
//   - its sub is a member's id in the plain form
//
// To revoke tokens, remove their key. The file has several, so that a new key comes before the old key goes.
//
// # Files that change
//
// A [Reloader] loads a file again when its content changed a second ago and not since. The log has an error
// if the content is unusable, and the previous content stays in use.
package auth
