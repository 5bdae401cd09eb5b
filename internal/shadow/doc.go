// Package shadow compares what a site shows a viewer by its own statement, or its own code, with the read of
// activityd, and says how the two differ and why. It changes nothing.
//
// # A fact, and not a matter of time
//
// [Comparer.Compare] reads the viewer's set, and then in one transaction, which sees one instant, runs the
// site's statement and the read (package recent) with that set. If they differ, a walk in the same transaction says what
// is due by the definition:
//
//   - The site's answer is not what is due. Then the two have other definitions, or the site's tables other rows than
//     the views over them. The rows of each photo of both answers, of that instant, say which of them may be shown; they decide
//     the [Class] and the [Cause].
//   - It is what is due, and ours is not. Then the set lacks a change that the transaction saw. The audit looks at the set (package
//     audit has the argument): if it is wrong still, with no task pending, that is an error; else it was lag. An exception is a
//     broken promise: a photo that is newer than its owner's last upload.
//
// An answer that the site's code gave has an instant of its own, which is not known. So [Judge] counts a difference only when both the
// answer and what is due were given twice, in turn, and were the same both times.
//
// # Bounds
//
// A site's statement has a time limit on the server, and a transaction one on the client. [Run] compares one member at a time, at the pace of
// package bulk, and ends when a server stays away, or when three members in a row fail. It keeps 12 bytes for each answer, and an
// example of each kind of difference.
package shadow
