package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// sweepSize bounds what one statement of a sweep changes, and sweepLeases the leases that it ends.
const (
	sweepSize   = 1000
	sweepLeases = 100
)

// chore is something that time brings. Its statements use an index of times, so
// that they look at no row whose time has not come.
type chore struct {
	name   string
	find   string // selects what is due, by its key
	change func(ctx context.Context, tx *sql.Tx, keys []any) (int, error)
	count  func(*Swept) *int // where it is counted; nil: nowhere
}

// chores that come after the leases that are over. Idempotency keys that were made at keysBefore or earlier
// are forgotten, however young they are.
func chores(keysBefore uint64) []chore {
	return []chore{
		{"forget finished tasks", dueTasks("done"), func(ctx context.Context, tx *sql.Tx, ids []any) (int, error) {
			return mysql.Affected(tx.ExecContext(ctx, deleteParked+"IN ("+mysql.Marks(len(ids))+")", ids...))
		}, nil},
		{"wake scheduled tasks", dueTasks("scheduled"), func(ctx context.Context, tx *sql.Tx, ids []any) (int, error) {
			return unpark(ctx, tx, ids, asTheyWere)
		}, func(s *Swept) *int { return &s.Due }},
		{
			"forget idempotency keys", fmt.Sprintf("SELECT key_hash FROM task_keys FORCE INDEX (created) WHERE created_at <= GREATEST(%s, %d) ORDER BY created_at", keyEnd, keysBefore),
			func(ctx context.Context, tx *sql.Tx, hashes []any) (int, error) {
				return mysql.Affected(tx.ExecContext(ctx, fmt.Sprintf("DELETE task_keys FROM task_keys FORCE INDEX (PRIMARY) WHERE created_at <= GREATEST(%s, %d) AND key_hash IN (%s)",
					keyEnd, keysBefore, mysql.Marks(len(hashes))), hashes...))
			}, nil,
		},
	}
}

// dueTasks finds parked tasks whose time has come, or that make no sense without one.
func dueTasks(state string) string {
	return "SELECT id FROM parked_tasks FORCE INDEX (timers) WHERE state = '" + state + "' AND (due_at <= " + now + " OR due_at IS NULL) ORDER BY due_at"
}

// Sweep does what time brings: it makes scheduled tasks waiting when they are
// due, frees tasks whose lease ran out or buries them when their attempts
// are used up, and drops those kept long enough. A lease that is to last longer than any can is over
// at once.
//
// When there is nothing to do, it costs one query. A chore that fails keeps no other from
// being done.
func (q *Queue) Sweep(ctx context.Context) (s Swept, err error) {
	var failed []error
	keysBefore, err := q.keyLimit.look(ctx, q.db)
	if err != nil {
		failed = append(failed, mysql.Translate(ctx, "look how many idempotency keys there are", err))
	}
	all := chores(keysBefore)
	due, over, err := q.dueChores(ctx, all)
	if err != nil {
		return s, errors.Join(append(failed, err)...)
	}
	if over {
		if s.TookOver, s.More, err = q.endLeases(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	for i, c := range all {
		if !due[i] {
			continue
		}
		n, err := q.sweepOnce(ctx, c)
		if err != nil {
			failed = append(failed, err)
		}
		if c.count != nil {
			*c.count(&s) += n
		}
		s.More = s.More || n == sweepSize
	}
	if s.Due+s.TookOver > 0 {
		q.cursors.forget()
	}
	return s, errors.Join(failed...)
}

// dueChores asks in one query which of the chores have something to do, and whether leases are over.
func (q *Queue) dueChores(ctx context.Context, all []chore) (due []bool, over bool, err error) {
	due = make([]bool, len(all))
	looks, into := []string{"EXISTS (SELECT 1 FROM task_leases FORCE INDEX (ends) WHERE " + leaseOver + ")"}, []any{&over}
	for i, c := range all {
		looks, into = append(looks, "EXISTS ("+c.find+")"), append(into, &due[i])
	}
	err = q.db.QueryRowContext(ctx, "SELECT "+strings.Join(looks, ", ")).Scan(into...)
	return due, over, mysql.Translate(ctx, "look what time brings to tasks", err)
}

// sweepOnce passes over rows that are locked: a locked one must not
// hold up all others that are due.
func (q *Queue) sweepOnce(ctx context.Context, c chore) (n int, err error) {
	err = mysql.Transact(ctx, q.db, c.name, func(tx *sql.Tx) error {
		n = 0
		keys, err := mysql.Keys(ctx, tx, c.find+" LIMIT ? FOR UPDATE SKIP LOCKED", sweepSize)
		if err != nil || len(keys) == 0 {
			return err
		}
		n, err = c.change(ctx, tx, keys)
		return err
	})
	return n, err
}
