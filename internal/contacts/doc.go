// Package contacts answers questions about members, their contacts and their
// photos from the site's own tables. It is the truth: whatever the index holds,
// the photos that may be shown are decided here, live, inside the SQL.
//
// # What a viewer may see
//
// A photo is visible to a viewer when its owner's users row exists, neither of the two
// blocks the other, and its [Visibility] names the viewer. Note the
// direction: the viewer's contacts decide whose photos are of interest, the owner's row of
// contacts about the viewer decides whether they are shown. Private photos are visible to
// no viewer.
//
// [MySQL] reads MySQL or MariaDB. The conformance suite and the property tests compare it with an executable
// specification, package contactstest: the plainest code for each answer.
package contacts
