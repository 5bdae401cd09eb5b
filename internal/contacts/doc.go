// Package contacts answers questions about members, their contacts and their
// photos from the site's own tables. It is the truth: whatever the index holds,
// what may be shown is decided here, live, inside the SQL.
//
// # What a viewer may see
//
// A photo is visible to a viewer when its owner's users row exists, the owner
// does not block the viewer, and its visibility is
//
//   - public, or
//   - friends, and the owner's contacts row for the viewer says is_friend, or
//   - family, and that row says is_family, or
//   - friends_family, and that row says either.
//
// Private photos are visible to no viewer. Note the direction: the viewer's contacts
// decide whose photos are of interest, the owner's grants decide which of them are
// shown.
//
// # Two implementations
//
// [MySQL] reads MySQL or MariaDB. [Memory] is the executable specification: the
// plainest code for each answer, against which the SQL is tested by one
// conformance suite and by property tests. Both return the errors declared in
// this package and are safe for concurrent use.
package contacts
