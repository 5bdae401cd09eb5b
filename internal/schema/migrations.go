package schema

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/mysql"
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
	// "DO 0" where tables are added: those come from schema.sql.
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

// version is what a database records about itself, as the comment of the table tasks: that needs
// no other table and no other right, is made with the table that it is about, and is not touched
// by CREATE TABLE IF NOT EXISTS.
type version struct {
	number   int
	since    int  // the oldest version whose programs work on it
	recorded bool // the tables of version 1 may be older than the record
}

const versionComment = "activityd schema %d, compatible since %d"

// record returns the statement that records the version.
func (v version) record() string {
	return fmt.Sprintf("ALTER TABLE tasks COMMENT = '"+versionComment+"', ALGORITHM=INPLACE, LOCK=NONE", v.number, v.since)
}

// versionIn returns the version of a database's tables: 1 if it records none, 0 if there
// is no table that would.
func versionIn(ctx context.Context, db mysql.Querier) (v version, err error) {
	found, err := rowsOf(ctx, db, "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE()"+
		" AND table_name = 'tasks' AND table_type <> 'VIEW'")
	if err != nil || len(found) == 0 {
		return version{}, err
	}
	if n, _ := fmt.Sscanf(found[0]["table_comment"], versionComment, &v.number, &v.since); n < 2 {
		return version{number: 1, since: 1}, nil
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
	f := &Finding{Wrong: true, Table: "tasks"}
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
func checkVersion1(ctx context.Context, db mysql.Querier) error {
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
