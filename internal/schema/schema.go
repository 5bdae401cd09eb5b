// Package schema brings the tables of schema.sql into a database.
package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/activityd/activityd"
)

// Execer runs one statement; *sql.DB, *sql.Conn and *sql.Tx do.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Apply runs the statements of schema.sql one at a time, so that the connection
// needs no multiStatements. Tables that exist stay as they are, with their rows.
// MySQL commits each CREATE TABLE by itself: after an error the tables before
// the failing one exist, and Apply may simply be called again. The error names
// the statement.
func Apply(ctx context.Context, db Execer) error {
	for i, statement := range Statements() {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema.sql, statement %d (%s): %w", i+1, title(statement), err)
		}
	}
	return nil
}

// Statements returns the statements of schema.sql in their order, without
// comments and without the closing semicolons.
func Statements() []string { return split(activityd.Schema) }

// title is the first line of a statement, which says what it makes.
func title(statement string) string {
	line, _, _ := strings.Cut(statement, "\n")
	return strings.TrimRight(line, " (")
}
