// Package mapping reads the description of a site whose tables have names, types and conditions of
// their own, and makes of it the views in whose place activityd reads, and the triggers that report
// the site's changes. The description is a file of sections for activityd's four names:
//
//	database = activityd
//
//	[users]
//	table       = site.members
//	id          = id
//	last_upload = last_upload
//	where       = deleted_at IS NULL
//
// It promises:
//
//   - A mistake is named by its line. A condition depends on a single row, so that a trigger sees
//     each change of it.
//   - The views show the meaning of the site's rows, and the triggers make a task of each change of it,
//     also where a row comes to exist, or ceases to, by an UPDATE.
//   - [Check] finds views and triggers that the file would make otherwise, and changes nothing for that.
//
// The statements stand in views.tmpl and triggers.tmpl. A view over two tables cannot be read by an index:
// where contacts are in several sections, a table of activityd's own takes the place of the view, and triggers
// copy the pairs into it. Each pair is read again from all sections whenever a row of it changes, so that a copy
// is right in whatever order they change.
package mapping
