package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/mysql"
)

// migration is the step from one version of activityd's own tables to the next. It may be run
// again when it, or a part of it, has been done.
// docs/decisions/0038-schema-versions.md has the rules for the next one.
type migration struct {
	// since is the oldest version whose programs work on the tables after the step.
	// It rises when a step takes away what only older programs use, and never falls.
	since int
	// statement alters a table, with the ALGORITHM and LOCK that it may use, and is done as a whole or
	// not at all. It is
	// "DO 0" where tables are added: those come from schema.sql.
	statement string
	// before and after change rows. Nil: nothing.
	before, after func(ctx context.Context, conn *sql.Conn) error
}

// history is the migrations that a program knows: the first leads from version base to the next.
type history []migration

// base is the oldest version that can be migrated. There was no release before it.
const base = 3

// migrations lead to the version of schema.sql.
var migrations = history{
	// Tasks that are not to run now move to parked_tasks.
	{
		since: 4,
		statement: "ALTER TABLE tasks DROP KEY claim, DROP KEY timers, DROP KEY chains, DROP COLUMN state, DROP COLUMN lease_owner, DROP COLUMN updated_at," +
			" MODIFY due_at BIGINT UNSIGNED NULL COMMENT 'not started before it; NULL: since it was inserted'," +
			" MODIFY dedupe_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'unique among tasks that have not been started'," +
			" ADD COLUMN lost TINYINT UNSIGNED NULL COMMENT 'the last lease ran out' AFTER dedupe_key," +
			" ADD KEY claim (queue, priority, id), ADD KEY subjects (subject), ALGORITHM=INPLACE, LOCK=NONE",
		before: parkTasks,
		after: func(ctx context.Context, conn *sql.Conn) error {
			// It was when a task that waits expires. The site may have inserted some just now.
			_, err := conn.ExecContext(ctx, "UPDATE tasks SET due_at = NULL WHERE due_at = expires_at")
			return err
		},
	},
	// A platform needs no step of its own. The table is copied, since it is none that the site writes.
	{
		since: 4,
		statement: "ALTER TABLE push_devices MODIFY platform VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'as in apns'," +
			" ADD COLUMN language VARCHAR(35) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of its texts, as in BCP 47' AFTER address," +
			" ALGORITHM=COPY, LOCK=SHARED",
	},
	// The table broadcast_members is new. Processes of version 5 know nothing of it: see docs/broadcast.md.
	{since: 4, statement: "DO 0"},
}

// version is the last one, which the program needs.
func (h history) version() int { return base + len(h) }

// parkTasks moves tasks that are not to run now out of tasks of version 3, some at a time. It
// refuses to begin while a process of that version works on one. Those whose lease ran out wait again.
// What a site inserts while it runs is of none of these states, or may wait.
func parkTasks(ctx context.Context, conn *sql.Conn) error {
	var there, running int
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'tasks' AND column_name = 'state'").Scan(&there)
	if err != nil || there == 0 {
		return err
	}
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks FORCE INDEX (timers) WHERE state = 'running' AND due_at > "+mysql.Now).Scan(&running)
	if err != nil {
		return err
	}
	if running > 0 {
		return fmt.Errorf("%d tasks run under leases of activityd of version 3: stop its processes, and try again when the leases are over, within a minute", running)
	}
	_, err = conn.ExecContext(ctx, "UPDATE tasks FORCE INDEX (timers) SET state = 'waiting', due_at = NULL, dedupe_key = NULL WHERE state = 'running'")
	for n := parkAtOnce; err == nil && n == parkAtOnce; {
		n, err = parkSome(ctx, conn)
	}
	return err
}

// parkAtOnce is how many tasks a transaction moves.
const parkAtOnce = 1000

func parkSome(ctx context.Context, conn *sql.Conn) (n int, err error) {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	ids, err := mysql.Keys(ctx, tx, "SELECT id FROM tasks FORCE INDEX (timers) WHERE state IN ('scheduled', 'dead', 'done', '') LIMIT ? FOR UPDATE", parkAtOnce)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	in := "WHERE id IN (" + mysql.Marks(len(ids)) + ")"
	for _, statement := range []string{
		"INSERT INTO parked_tasks (id, state, queue, type, subject, args, priority, attempts, max_attempts, expires_at, due_at, dedupe_key, last_error, created_at, updated_at)" +
			" SELECT id, IF(state = '', 'dead', state), queue, type, subject, args, priority, attempts, max_attempts, expires_at, due_at," +
			" IF(dedupe_key LIKE '~%', NULL, dedupe_key), last_error, created_at, updated_at FROM tasks " + in,
		"DELETE FROM tasks " + in,
	} {
		if _, err := tx.ExecContext(ctx, statement, ids...); err != nil {
			return 0, err
		}
	}
	return len(ids), tx.Commit()
}

// version is what a database records about itself, as the comment of the table tasks: that needs
// no other table and no other right, is made with the table that it is about, and is not touched
// by CREATE TABLE IF NOT EXISTS.
type version struct {
	number int
	since  int // the oldest version whose programs work on it
}

const versionComment = "activityd schema %d, compatible since %d"

// record returns the statement that records the version.
func (v version) record() string {
	return fmt.Sprintf("ALTER TABLE tasks COMMENT = '"+versionComment+"', ALGORITHM=INPLACE, LOCK=NONE", v.number, v.since)
}

// versionIn returns the version of a database's tables: 1, which is too old, if it records none, 0 if there
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
	if is.number < base {
		return nil, fmt.Errorf("the table tasks is not activityd's, or of version %d, of before the first release: if it is yours, give the queue another database; else drop tasks, task_keys, paused_queues and once_keys, or run activityd of version %d on them first", is.number, base)
	}
	steps := h[is.number-base:]
	for i, step := range steps {
		if step.since > is.number && !offline {
			return nil, fmt.Errorf("the tables are of version %d, and version %d shuts out activityd of before version %d: replace all processes by a release of version %[3]d first,"+
				" or stop them all and add --offline", is.number, is.number+i+1, step.since)
		}
	}
	return steps, nil
}
