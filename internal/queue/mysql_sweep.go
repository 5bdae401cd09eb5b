package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// sweepSize bounds what one statement of a sweep changes.
const sweepSize = 1000

// chore is something that time brings. Its statements use an index of times, so
// that they look at no row whose time has not come.
type chore struct {
	name   string
	find   string // selects what is due, by its key
	change string // is done to it; AND key IN follows
	key    string
	count  func(*Swept) *int // where it is counted; nil: nowhere
}

// chores, in an order in which none has work for a later one: a task changes at
// most once in a sweep. Idempotency keys that were made at keysBefore or earlier
// are forgotten, however young they are.
func chores(keysBefore uint64) []chore {
	return []chore{
		{
			"drop expired tasks", dueTasks("waiting", ""), deleteTasks + "state = 'waiting'", "id",
			func(s *Swept) *int { return &s.Dropped },
		},
		{"forget finished tasks", dueTasks("done", atOnce), deleteTasks + "state = 'done'", "id", nil},
		{
			"wake scheduled tasks", dueTasks("scheduled", atOnce),
			updateTasks + "state = 'waiting', due_at = expires_at, updated_at = " + now + " WHERE state = 'scheduled'", "id",
			func(s *Swept) *int { return &s.Due },
		},
		{
			"free leases that ran out", dueTasks("running", atOnce+" OR due_at > "+now+" + "+strconv.FormatInt(MaxLease.Milliseconds(), 10)),
			updateTasks + "due_at = IF(attempts >= max_attempts, NULL, expires_at), state = IF(attempts >= max_attempts, 'dead', 'waiting')," +
				" last_error = CONCAT('the lease of ', COALESCE(lease_owner, 'an unknown worker'), ' ran out: it crashed, was stopped, or took too long')," +
				" lease_owner = '" + lostOwner + "', updated_at = " + now + " WHERE state = 'running'", "id",
			func(s *Swept) *int { return &s.TookOver },
		},
		{
			"bury tasks without a state", "SELECT id FROM tasks FORCE INDEX (timers) WHERE state = ''",
			updateTasks + "state = 'dead', due_at = NULL, last_error = 'it was inserted in a state that there is not', updated_at = " + now + " WHERE state = ''", "id", nil,
		},
		{
			"forget idempotency keys", fmt.Sprintf("SELECT key_hash FROM task_keys FORCE INDEX (created) WHERE created_at <= GREATEST(%s, %d) ORDER BY created_at", keyEnd, keysBefore),
			fmt.Sprintf("DELETE task_keys FROM task_keys FORCE INDEX (PRIMARY) WHERE created_at <= GREATEST(%s, %d)", keyEnd, keysBefore), "key_hash", nil,
		},
	}
}

// atOnce is what is due though no time says so: rows that make no sense otherwise.
const atOnce = " OR due_at IS NULL"

func dueTasks(state, also string) string {
	return "SELECT id FROM tasks FORCE INDEX (timers) WHERE state = '" + state + "' AND (due_at <= " + now + also + ") ORDER BY due_at"
}

// Sweep does what time brings: it makes scheduled tasks waiting when they are
// due, frees tasks whose lease ran out or buries them when their attempts
// are used up, and drops those that expired and those kept long enough. A
// task that is scheduled, running or done without a time is due at once, and
// so is a lease that is to last longer than any can.
//
// When there is nothing to do, it costs one query. A chore that fails keeps no other from
// being done.
func (q *MySQLQueue) Sweep(ctx context.Context) (s Swept, err error) {
	var failed []error
	keysBefore, err := q.keyLimit.look(ctx, q.db)
	if err != nil {
		failed = append(failed, mysql.Translate(ctx, "look how many idempotency keys there are", err))
	}
	all := chores(keysBefore)
	due, err := q.dueChores(ctx, all)
	if err != nil {
		return s, errors.Join(append(failed, err)...)
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

// dueChores asks in one query which of the chores have something to do.
func (q *MySQLQueue) dueChores(ctx context.Context, all []chore) ([]bool, error) {
	looks, due, into := make([]string, len(all)), make([]bool, len(all)), make([]any, len(all))
	for i, c := range all {
		looks[i], into[i] = "EXISTS ("+c.find+")", &due[i]
	}
	err := q.db.QueryRowContext(ctx, "SELECT "+strings.Join(looks, ", ")).Scan(into...)
	return due, mysql.Translate(ctx, "look what time brings to tasks", err)
}

// sweepOnce passes over rows that are locked: a locked one must not
// hold up all others that are due.
func (q *MySQLQueue) sweepOnce(ctx context.Context, c chore) (n int, err error) {
	err = mysql.Transact(ctx, q.db, c.name, func(tx *sql.Tx) error {
		n = 0
		keys, err := mysql.Keys(ctx, tx, c.find+" LIMIT ? FOR UPDATE SKIP LOCKED", sweepSize)
		if err != nil || len(keys) == 0 {
			return err
		}
		n, err = changeRows(ctx, tx, keys, func(keys []any) (int, error) {
			return mysql.Affected(tx.ExecContext(ctx, c.change+" AND "+c.key+" IN ("+mysql.Marks(len(keys))+")", keys...))
		})
		return err
	})
	return n, err
}
