// Package auth holds the secrets by which the two sides of a connection know
// each other: the tokens that clients show, and the certificate that the server
// shows. It knows hashes, files, scopes and limits, and nothing of HTTP.
//
// # Tokens
//
// A token is a line of a file or of the environment:
//
//	# name    scopes      hash of the secret       how much, if limited
//	homepage  read        sha256:9f86d081884c7d65… rate=500/s burst=1000
//	uploads   read,write  sha256:60303ae22b998861…
//	support   admin       sha256:fd61a03af4f77d87…
//
// Only the client has the secret itself. What is stored is its plain SHA-256,
// without salt or rounds: these slow down the guessing of words that people think
// of, and these secrets are 130 random bits. A slow hash would also be slow for every
// request.
//
// [Tokens.Check] compares with every token there is, each in constant time, so
// that the time of an answer tells nothing of how near a guess was.
//
// # Scopes
//
// A token may do what its scopes say: read the answers, write tasks. admin may
// both, and sees what is an operator's to see. write does not include read: a host that
// takes uploads needs no answers.
//
// # Limits
//
// A token may have a limit of requests: so many a second, minute or hour, and so
// many at once. It belongs to the name. A reload of the file, or a new secret
// under an old name, does not fill the bucket again. Each process counts for
// itself.
//
// # Files that change
//
// [LoadTokens] and [LoadCertificate] load their files once, and return an error when
// these are bad. With their [Reloader] they are loaded again when the times, the size,
// the mode or the identity of a file changed. What cannot be used is logged once, and
// what was there stays in use. An orderly file without any token is used, as it is how
// the last one is revoked. A warning names a token file or a key that everybody may
// read, or that others may change because they may write to it or to its folder.
// [AppendToken] locks the file against others that add to it; other programs should
// replace it whole.
package auth
