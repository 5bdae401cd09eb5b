// Package activityd holds what the module ships beside its code: the schema of
// the tables that it reads and owns. The program is cmd/activityd.
package activityd

import _ "embed"

// Schema is the text of schema.sql: every table that activityd reads or owns,
// in statements that are safe to apply again. Package internal/schema applies
// it.
//
//go:embed schema.sql
var Schema string
