// Package contacts answers questions about members, their contacts and their
// photos from the site's own tables. It is the truth: whatever the index holds,
// what may be shown is decided here, live, inside the SQL.
//
// # What a viewer may see
//
// A photo is visible to a viewer when its owner's users row exists, neither of the two
// blocks the other, and the viewer is one of those that its [Visibility] names. Note the
// direction: the viewer's contacts decide whose photos are of interest, the owner's row of
// contacts about the viewer decides which of them are shown. Private photos are visible to
// no viewer.
//
// # Two implementations
//
// [MySQL] reads MySQL or MariaDB. [Memory] is the executable specification: the
// plainest code for each answer, against which the SQL is tested by one
// conformance suite and by property tests. Both return the errors declared in
// this package and are safe for concurrent use.
package contacts
