// Package auth holds the tokens of clients, the keys of the tokens of viewers, and the
// certificate of the server. It knows hashes, signatures, files, scopes and limits, and
// nothing of HTTP.
//
// # Tokens
//
// A token is a line of a file or of the environment:
//
//	# name    scopes      hash of the secret       how much, if limited
//	homepage  read        sha256:9f86d081884c7d65… rate=500/s burst=1000
//	uploads   read,write  sha256:60303ae22b998861…
//	support   admin       sha256:fd61a03af4f77d87…
//	mailer    work        sha256:19d1b75e4c1f3b0a…  queues=mail
//
// Only the client has the secret itself. What is stored is its plain SHA-256, without salt
// or rounds: these slow down the guessing of passwords, and the secrets are 130 random
// bits. A slow hash would also be slow for every request.
//
// [Tokens.Check] compares with every token, each in constant time, so that the time of an
// answer does not disclose how near a guess was.
//
// # Scopes
//
// The scope read is for answers, write for tasks; admin includes both, and what is for
// operators, which inspect may look at. write does not include read: a host that takes uploads needs no answers.
// work is for claiming and finishing the tasks of the queues that the line names, and admin does not include it.
//
// # Limits
//
// A token may have a limit of requests: so many a second, minute or hour, and so many at
// once. It belongs to the name: a reload of the file, or a new secret under an old name,
// does not fill the bucket again. Each process counts for itself.
//
// # Viewers
//
// A viewer's token is made by the site for one of its members: a JSON Web Token that is
// signed with a key of the site and lives for a day at most. A viewer may ask for itself and
// for nothing else; it has no scope, and no token of the one kind is one of the other.
// [Viewers.Check] accepts a token if
//
//   - it is short, in the one compact form, and its JSON has no name twice
//   - its header has kid, alg and perhaps typ, and nothing else
//   - the key with that kid has that alg, which the file says and not the token
//   - the signature is right; then: it has begun, has not ended, and ends within a day
//   - it is for the audience of the server, or for none if the server has none
//   - its sub is a member's id in the plain form
//   - the tokens of that member were not revoked, or this one was made later
//
// When the tokens of a member were revoked stands in the file of the keys, for as long as one
// of them could live.
//
// A viewer's limit belongs to the member, and each process counts for itself.
//
// # Files that change
//
// [LoadTokens], [LoadViewers] and [LoadCertificate] load their files once, and fail when
// these cannot be used. Their [Reloader] loads them again when the time, the size, the mode
// or the identity of a file changed. Content that cannot be used is logged once, and the
// previous content stays in use. A file without any token is used, as that is how the last
// one is revoked. A warning names a token file or a key that all users may read, or that
// others may change because they may write to it or to its folder. [AppendToken],
// [AddViewerKey] and [RevokeViewer] lock the file against each other and replace it whole, as other
// programs should.
package auth
