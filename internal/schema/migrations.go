package schema

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
)

// migration is the step from one version of activityd's own tables to the next: one
// statement, so that it is done as a whole or not at all. It may be run again when it
// has been done, and processes of the version before keep working while it runs and
// after it.
// docs/decisions/0038-schema-versions.md has the rules for the next one.
type migration struct {
	// since is the oldest version whose programs work on the tables after the step.
	// It rises when a step takes away what only older programs use, and never falls.
	since int
	// statement alters a table, with the ALGORITHM and LOCK that it may use. It is
	// "DO 0" where tables are added: those come from schema.sql. In a database without the
	// table, as the queue lives apart, the step is only recorded.
	statement string
}

// history is the migrations that a program knows: the first leads from version 1 to 2.
type history []migration

// migrations lead to the version of schema.sql.
var migrations = history{
	{since: 1, statement: "DO 0"}, // the table once_keys
	{since: 1, statement: "DO 0"}, // the tables push_*
}

// version is the last one, which the program needs.
func (h history) version() int { return 1 + len(h) }

// version is what a database records about itself, as the comment of the table tasks,
// and of once_keys, which stands for it where the queue lives apart: that needs no other
// table and no other right, is made with the table that it is about, and is not touched by
// CREATE TABLE IF NOT EXISTS.
type version struct {
	table    string // the table whose record counts
	number   int
	since    int  // the oldest version whose programs work on it
	recorded bool // the tables of version 1 may be older than the record
}

const versionComment = "activityd schema %d, compatible since %d"

// statement records the version with a table.
func (v version) statement(table string) string {
	return fmt.Sprintf("ALTER TABLE "+table+" COMMENT = '"+versionComment+"', ALGORITHM=INPLACE, LOCK=NONE", v.number, v.since)
}

// record records the version where it is not recorded yet, last with the table that counts.
func (v version) record(ctx context.Context, conn *sql.Conn) error {
	found, err := recordsIn(ctx, conn)
	for _, r := range slices.Backward(found) {
		if err == nil && r["table_comment"] != fmt.Sprintf(versionComment, v.number, v.since) {
			_, err = conn.ExecContext(ctx, v.statement(r["table_name"]))
		}
	}
	if err != nil {
		return fmt.Errorf("record schema version %d: %w", v.number, advise(err))
	}
	return nil
}

// recordsIn returns the tables that a version is recorded with, as far as there are any
// that this user can see. The first one counts.
func recordsIn(ctx context.Context, db querier) ([]row, error) {
	return rowsOf(ctx, db, "SELECT table_name, table_comment FROM information_schema.tables WHERE table_schema = DATABASE()"+
		" AND table_name IN ('tasks', 'once_keys') AND table_type <> 'VIEW' ORDER BY table_name = 'once_keys'")
}

// versionIn returns the version of a database's tables: 1 if it records none, 0 if there
// is no table that would.
func versionIn(ctx context.Context, db querier) (v version, err error) {
	found, err := recordsIn(ctx, db)
	if err != nil || len(found) == 0 {
		return version{}, err
	}
	v.table = found[0]["table_name"]
	if n, _ := fmt.Sscanf(found[0]["table_comment"], versionComment, &v.number, &v.since); n < 2 {
		v.number, v.since = 1, 1
		return v, nil
	}
	v.recorded = true
	return v, nil
}

// Compatible returns an error if the tables are of a version on which this program
// cannot work, and says what to do. It ignores the error of its own query, which the
// caller's next statement meets, too.
func Compatible(ctx context.Context, db *sql.DB) error {
	is, err := versionIn(ctx, db)
	if misfit := migrations.misfit(is); err == nil && misfit != nil {
		return errors.New(misfit.String())
	}
	return nil
}

// misfit returns why the program cannot work on tables of a version; nil if it can.
func (h history) misfit(is version) *Finding {
	f := &Finding{Wrong: true, Table: is.table}
	switch {
	case is.since > h.version():
		f.What = fmt.Sprintf("is of schema version %d, for activityd of version %d and later: this is one of version %d", is.number, is.since, h.version())
		f.Do = "this activityd is older than the schema: run a newer one"
	case 0 < is.number && is.number < h.version():
		f.What = fmt.Sprintf("is of schema version %d: this activityd needs version %d", is.number, h.version())
		f.Do = "run activityd schema --apply"
	default:
		return nil
	}
	return f
}

// after returns the steps that are to be taken from a version on.
func (h history) after(is version, offline bool) ([]migration, error) {
	switch misfit := h.misfit(is); {
	case misfit == nil:
		return nil, nil
	case is.since > h.version():
		return nil, errors.New(misfit.String())
	}
	steps := h[is.number-1:]
	for i, step := range steps {
		if step.since > is.number && !offline {
			return nil, fmt.Errorf("the tables are of version %d, and version %d shuts out activityd of before version %d: replace all processes by a release of version %[3]d first,"+
				" or stop them all and add --offline", is.number, is.number+i+1, step.since)
		}
	}
	return steps, nil
}

//go:embed v1.sql
var version1 string

// checkVersion1 makes sure that tables without a record are those of version 1.
func checkVersion1(ctx context.Context, db querier) error {
	c := &checker{db: db}
	if err := c.read(ctx); err != nil {
		return err
	}
	for _, want := range tablesOf(version1) {
		if have := c.tables[want.name]; have != nil {
			c.checkOwned(want, have)
		}
	}
	if len(c.wrong) > 0 {
		return fmt.Errorf("the tables record no version, and are not those of version 1, which could be migrated: %v", c.wrong)
	}
	return nil
}
