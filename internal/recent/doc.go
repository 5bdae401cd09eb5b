// Package recent finds, for a viewer, the newest photos of the contact that was active last: the read that activityd
// exists for.
//
// # The definition
//
// Among all photos that the viewer may see now and whose owner is a contact of the viewer now, take the newest by
// (date, id). Its owner is the most recently active contact; the answer is that owner's newest visible photos. The
// definition is about MySQL alone. The index only makes finding the answer cheap, and this package proves each answer
// before it gives it.
//
// # The proof
//
// A set S of the index promises (package index): a contact that uploaded after low(S), the lowest score in S, is a member
// of S (I1); a member's score is at least the date of its newest photo that is not private, as no viewer is shown a
// private photo (I2); a set smaller than min holds all contacts that ever uploaded (I3). So scores are upper bounds,
// sorted, and the threshold algorithm of Fagin, Lotem and Naor ("Optimal aggregation algorithms for middleware", 2003)
// applies: stop as soon as the best photo found beats every bound not yet looked at.
//
//  1. Ask for the photos of the first of S. If the newest is strictly newer than the score of the second, no contact
//     beyond can have a newer photo: this is the answer, after a round trip to Redis and a round trip to MySQL.
//  2. Otherwise ask for the newest visible photo of all of S, in a single statement and so at a single instant. The best
//     is the answer if it is strictly newer than low(S), or if S is smaller than min.
//  3. Otherwise, or without a usable set, walk through the viewer's contacts in MySQL, in a snapshot.
//
// The uploads of broadcast members are in a table of MySQL and in no set. Each of the two statements asks for the
// broadcast members among the viewer's contacts, too; narrow has the argument.
//
// "Strictly", because photos of the same second are distinguished by id, and a score knows no ids.
//
// While tasks are pending, I1 may fail for just the contacts whose change is not yet applied; the answer is then as if
// the changes had not been made. Relationship, blocks and visibility are never older than the request, because they are
// decided by the statements of the request itself.
//
// # Explanations
//
// [Reader.Explain] adds to an answer the [Trace] of the candidates, as JSON for the API, and by [Answer.Explanation] in
// words. It is for operators only: a score may be the date of a hidden photo, and a verdict tells a block from nothing to
// show. So viewers get neither the source of an answer nor its time. How long an answer takes to arrive cannot be hidden.
package recent
