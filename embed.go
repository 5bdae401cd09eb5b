// Package activityd holds the files that the module ships beside its code: the schema of the tables
// that it reads and owns, and the triggers with which a site may adopt it. The program is
// cmd/activityd.
package activityd

import _ "embed"

// Schema is the text of schema.sql and queue/schema.sql: every table that activityd reads or owns, in statements that are safe to
// apply again. Package internal/schema applies it.
var Schema = tables + "\n" + queueTables

var (
	//go:embed schema.sql
	tables string
	//go:embed queue/schema.sql
	queueTables string
)

// Triggers is the text of triggers.sql: optional triggers that insert the tasks
// for a site that does not do it itself. Package internal/schema installs and
// removes them; the MySQL client can, too.
//
//go:embed triggers.sql
var Triggers string
