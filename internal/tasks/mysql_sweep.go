package tasks

import (
	"context"
	"database/sql"
	"strings"

	"github.com/activityd/activityd/internal/contacts"
)

// sweepSize bounds what one statement of a sweep changes.
const sweepSize = 1000

// chore is something that time brings. Its statements use the index timers, so
// that they look at no task whose time has not come.
type chore struct {
	name  string
	due   string // a condition: is there anything to do?
	do    string
	count func(*Swept) *int // where it is counted; nil: nowhere
}

// chores, in an order in which none has work for a later one: a task changes at
// most once in a sweep.
func chores() []chore {
	return []chore{
		{
			"drop expired tasks", "SELECT 1 FROM tasks WHERE state = 'waiting' AND due_at <= " + now,
			"DELETE FROM tasks WHERE state = 'waiting' AND due_at <= " + now + " ORDER BY due_at LIMIT ?",
			func(s *Swept) *int { return &s.Dropped },
		},
		{
			"forget finished tasks", "SELECT 1 FROM tasks WHERE state = 'done' AND due_at <= " + now,
			"DELETE FROM tasks WHERE state = 'done' AND due_at <= " + now + " ORDER BY due_at LIMIT ?",
			nil,
		},
		{
			"wake scheduled tasks", "SELECT 1 FROM tasks WHERE state = 'scheduled' AND due_at <= " + now,
			"UPDATE tasks SET state = 'waiting', due_at = expires_at, updated_at = " + now +
				" WHERE state = 'scheduled' AND due_at <= " + now + " ORDER BY due_at LIMIT ?",
			func(s *Swept) *int { return &s.Due },
		},
		{
			"free leases that ran out", "SELECT 1 FROM tasks WHERE state = 'running' AND due_at <= " + now,
			"UPDATE tasks SET due_at = IF(attempts >= max_attempts, NULL, expires_at), state = IF(attempts >= max_attempts, 'dead', 'waiting')," +
				" last_error = CONCAT('the lease of ', lease_owner, ' ran out: it crashed, was stopped, or took too long')," +
				" lease_owner = NULL, updated_at = " + now +
				" WHERE state = 'running' AND due_at <= " + now + " ORDER BY due_at LIMIT ?",
			func(s *Swept) *int { return &s.TookOver },
		},
		{
			"forget idempotency keys", "SELECT 1 FROM task_keys WHERE created_at <= " + keyEnd,
			"DELETE FROM task_keys WHERE created_at <= " + keyEnd + " ORDER BY created_at LIMIT ?",
			nil,
		},
	}
}

// Sweep implements [Queue]. When there is nothing to do, it costs one query.
func (q *MySQLQueue) Sweep(ctx context.Context) (s Swept, err error) {
	all := chores()
	due, err := q.dueChores(ctx, all)
	if err != nil {
		return s, err
	}
	for i, c := range all {
		if !due[i] {
			continue
		}
		n, err := q.sweepOnce(ctx, c)
		if err != nil {
			return s, err
		}
		if c.count != nil {
			*c.count(&s) += n
		}
		s.More = s.More || n == sweepSize
	}
	if s.Due+s.TookOver > 0 {
		q.buried.forget()
	}
	return s, nil
}

// dueChores asks in one query which of the chores have something to do.
func (q *MySQLQueue) dueChores(ctx context.Context, all []chore) ([]bool, error) {
	looks, due, into := make([]string, len(all)), make([]bool, len(all)), make([]any, len(all))
	for i, c := range all {
		looks[i], into[i] = "EXISTS ("+c.due+")", &due[i]
	}
	err := q.db.QueryRowContext(ctx, "SELECT "+strings.Join(looks, ", ")).Scan(into...)
	return due, contacts.Translate(ctx, "look what time brings to tasks", err)
}

func (q *MySQLQueue) sweepOnce(ctx context.Context, c chore) (n int, err error) {
	err = q.transact(ctx, c.name, func(tx *sql.Tx) (err error) {
		n, err = affected(tx.ExecContext(ctx, c.do, sweepSize))
		return err
	})
	return n, err
}
